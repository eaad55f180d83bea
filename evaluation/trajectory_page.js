"use strict";
// Draws one rollout at a time from the JSON in #data. Recorded text reaches the page through textContent only.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const steps = data.steps;
  if (!steps.length) return;
  const at = { step: steps.length - 1, group: 0, rollout: 0 }; // indices, not numbers
  const byId = (id) => document.getElementById(id);
  const text = (index) => (index < 0 ? null : data.strings[index]);

  function el(tag, className, ...children) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    for (const child of children) if (child !== null) node.append(child);
    return node;
  }
  const signed = (value) => (value < 0 ? "−" : value > 0 ? "+" : "") + Math.abs(value).toFixed(2);
  const named = (index) => el("span", "mono", text(index));

  const group = () => steps[at.step].groups[at.group];
  const rollout = () => group().rollouts[at.rollout];
  const counts = () => ({ step: steps.length, group: steps[at.step].groups.length, rollout: group().rollouts.length });

  // --- position ---------------------------------------------------------------------------------------------------

  const clamp = (value, count) => Math.max(0, Math.min(count - 1, value));

  function settle() {
    at.step = clamp(at.step, steps.length);
    at.group = clamp(at.group, steps[at.step].groups.length);
    at.rollout = clamp(at.rollout, group().rollouts.length);
  }

  function hash() {
    return "#step=" + steps[at.step].step + "&group=" + (group().group + 1) + "&rollout=" + (rollout().rollout + 1);
  }

  function readHash() {
    const words = new URLSearchParams(location.hash.slice(1));
    const find = (list, key, wanted) => list.findIndex((one) => one[key] === wanted);
    const step = find(steps, "step", Number(words.get("step")));
    if (!words.has("step") || step < 0) return;
    at.step = step;
    at.group = Math.max(0, find(steps[step].groups, "group", Number(words.get("group")) - 1));
    at.rollout = Math.max(0, find(group().rollouts, "rollout", Number(words.get("rollout")) - 1));
  }

  function show() {
    settle();
    draw();
    if (location.hash !== hash()) location.replace(hash()); // replace: the back button leaves the page
  }

  function go(name, index) {
    at[name] = index;
    show();
  }

  // --- bar --------------------------------------------------------------------------------------------------------

  function fill(select, labels, chosen) {
    select.replaceChildren(...labels.map((label, i) => {
      const option = el("option", "", label);
      option.value = String(i);
      return option;
    }));
    select.value = String(chosen);
  }

  function rolloutButton(i) {
    const button = el("button", "", String(group().rollouts[i].rollout + 1));
    button.type = "button";
    button.setAttribute("aria-pressed", String(i === at.rollout));
    button.setAttribute("aria-label", "rollout " + button.textContent);
    button.addEventListener("click", () => {
      go("rollout", i); // draws new buttons: the focus must not fall back to the top of the page
      byId("rollouts").children[i].focus({ preventScroll: true });
    });
    return button;
  }

  function drawBar() {
    const total = counts();
    fill(byId("step"), steps.map((one) => String(one.step)), at.step);
    fill(byId("group"), steps[at.step].groups.map((one) => one.group + 1 + ": " + text(one.query).slice(0, 60)), at.group);
    byId("rollouts").replaceChildren(...group().rollouts.map((_, i) => rolloutButton(i)));
    for (const button of document.querySelectorAll("[data-move]")) {
      const next = at[button.dataset.move] + Number(button.dataset.by);
      button.disabled = next < 0 || next >= total[button.dataset.move];
    }
    byId("where").textContent = "step " + steps[at.step].step + " (" + (at.step + 1) + " of " + total.step + " recorded), group "
      + (at.group + 1) + " of " + total.group + ", rollout " + (at.rollout + 1) + " of " + total.rollout;
  }

  // --- request and group ------------------------------------------------------------------------------------------

  function foundAt(one, target) {
    return one.events.findIndex((event) => event.first.includes(target));
  }

  function row(label, cell) {
    const line = el("tr", "", el("th", "", ...label));
    group().rollouts.forEach((one, i) => line.append(el("td", i === at.rollout ? "here" : "", ...cell(one))));
    return line;
  }

  function targetRow(target, i) {
    const seen = group().rollouts.filter((one) => foundAt(one, i) >= 0).length;
    const label = [named(target), el("small", "", "seen by " + seen + " of " + group().rollouts.length)];
    return row(label, (one) => {
      const event = foundAt(one, i);
      const z = one.z === null || one.z[i] === null ? "" : "z " + signed(one.z[i]);
      return [event < 0 ? "✗" : "✓ e" + (event + 1), el("small", "", z)];
    });
  }

  function credit(event) {
    if (event.adv === null) return "–";
    return event.kept ? signed(event.adv) : "removed";
  }

  function answerCell(one) {
    const answer = one.events.find((event) => text(event.kind) === "answer");
    return [one.f1 === null ? "–" : one.f1.toFixed(2), el("small", "", answer ? "adv " + credit(answer) : "no answer")];
  }

  function drawRequest() {
    const one = group();
    const head = el("tr", "", el("th", ""));
    one.rollouts.forEach((_, i) => head.append(el("th", i === at.rollout ? "here" : "", rolloutButton(i))));
    const body = el("tbody", "", ...one.targets.map(targetRow),
      row(["searches"], (r) => [String(r.events.filter((event) => text(event.kind) === "search").length)]),
      row(["F1 of the answer"], answerCell),
      row(["reward"], (r) => [r.reward === null ? "–" : r.reward.toFixed(2)]));
    byId("request").replaceChildren(
      el("div", "tags", el("span", "tag", "step " + steps[at.step].step), el("span", "tag", "group " + (one.group + 1)),
        text(one.level) ? el("span", "tag", text(one.level)) : null, el("span", "tag", "task " + text(one.task))),
      el("h2", "", text(one.query)),
      el("div", "scroll", el("table", "", el("thead", "", head), body)),
      el("p", "soft", "✓ e2: event 2 was the first of the rollout to show this target. ✗: never shown."));
  }

  // --- tokens -----------------------------------------------------------------------------------------------------

  function tokenClass(event) {
    if (event.adv === null) return "unknown";
    if (!event.kept) return "removed";
    if (event.adv === 0) return "zero";
    const level = Math.max(1, Math.ceil((4 * Math.abs(event.adv)) / data.scale - 1e-6));
    return (event.adv > 0 ? "plus l" : "minus l") + Math.min(4, level);
  }

  function sign(event) {
    const level = Number(/l(\d)/.exec(tokenClass(event) + " l0")[1]);
    const kind = tokenClass(event).split(" ")[0];
    if (kind === "plus") return el("span", "sign up", "▲".repeat(level));
    if (kind === "minus") return el("span", "sign down", "▼".repeat(level));
    return el("span", "sign", { zero: "○", removed: "╱╱", unknown: "?" }[kind]);
  }

  // Control characters become visible; a line end also breaks the line.
  function visible(token) {
    if (token === "") return "∅";
    return token.replace(/[\u0000-\u0009\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0))).replace(/\n/g, "↵\n");
  }

  function tokenStrip(event) {
    const strip = el("div", "tokens mono wide");
    const kind = tokenClass(event);
    if (event.tokens === null) {
      strip.append(el("p", "count", "Token texts were not recorded; the turn as text:"), el("span", "t " + kind, visible(text(event.text))));
      return strip;
    }
    const [start, end] = event.span;
    const what = { removed: " removed from the policy loss", zero: " kept, advantage 0", unknown: "" }[kind];
    strip.append(el("p", "count", sign(event), " " + event.tokens.length + " tokens (" + start + " to " + (end - 1)
      + " of the completion)" + (what === undefined ? ", each weighted " + signed(event.adv) : what)));
    event.tokens.forEach((token, i) => {
      const node = el("span", "t " + kind, visible(text(token)));
      node.title = "token " + (start + i) + ": " + credit(event);
      strip.append(node);
    });
    return strip;
  }

  function drawLegend() {
    const sample = (adv, kept, label) => {
      const event = { adv, kept };
      return el("span", "", sign(event), " ", el("span", "mono t " + tokenClass(event), " token "), " " + label);
    };
    const top = data.scale;
    const row = el("div", "row", el("b", "", "Tokens:"),
      sample(top, true, signed(top)), sample(top / 4, true, signed(top / 4)), sample(0, true, "0, kept"),
      sample(-top / 4, true, signed(-top / 4)), sample(-top, true, signed(-top)), sample(0, false, "removed"));
    byId("legend").replaceChildren(row, el("p", "soft", "Solid underline: made more likely; dashed: less likely; thickness, "
      + "shade and number of triangles: quarters of the largest advantage on this page. Hatched: not in the policy loss."));
  }

  // --- events -----------------------------------------------------------------------------------------------------

  function hitItem(hit, event, targets) {
    const target = targets.indexOf(hit);
    const first = event.first.includes(target);
    const note = target < 0 ? null : el("span", "tag good", first ? "target, first found here" : "target, seen before");
    return el("li", target < 0 ? "" : "target", el("span", "mark" + (target < 0 ? "" : " good"), target < 0 ? "·" : "✓"), named(hit), " ", note);
  }

  const VERDICTS = {
    target: ["✓", "good", "target"], other: ["✗", "bad", "not a target"],
    unseen: ["✗", "bad", "never shown by a search"], unknown: ["✗", "bad", "no such tool"],
  };

  function answerItem([name, verdict]) {
    const [mark, tone, label] = VERDICTS[verdict];
    return el("li", verdict, el("span", "mark " + tone, mark), named(name), " ", el("span", "tag " + tone, label));
  }

  function list(items, none) {
    return items.length ? el("ol", "hits", ...items) : el("p", "soft", none);
  }

  function folded(summary, content) {
    return content === null ? null : el("details", "", el("summary", "", summary), el("pre", "", content));
  }

  function creditColumn(event) {
    if (event.adv === null) return el("div", "credit", el("p", "", "no credit recorded"));
    const column = el("div", "credit", el("p", "", "advantage ", el("strong", "", signed(event.adv)), " ",
      el("span", event.kept ? "tag" : "tag bad", event.kept ? "kept" : "removed")));
    for (const [target, z] of event.z) column.append(el("p", "", "z " + signed(z) + " ", named(target)));
    return column;
  }

  function eventItem(event, i) {
    const kind = text(event.kind);
    const what = el("p", "", el("b", "", i + 1 + ". " + kind.replace(/_/g, " ")), " ");
    if (kind !== "search" && kind !== "answer") what.append(el("span", "tag bad", "fault"), " ");
    if (event.query >= 0) what.append(el("span", "mono", "“" + text(event.query) + "”"), " ");
    if (event.category >= 0) what.append(el("span", "tag", "in " + text(event.category)));
    const left = el("div", "", what);
    if (kind === "search") left.append(list(event.hits.map((hit) => hitItem(hit, event, group().targets)), "no hits"));
    if (kind === "answer") left.append(list((rollout().selection || []).map(answerItem), "named no tool"));
    const node = el("li", "event", left, creditColumn(event), tokenStrip(event));
    const shown = folded("what the model was shown next (never trained)", text(event.obs));
    if (shown) { shown.classList.add("wide"); node.append(shown); }
    return node;
  }

  function drawEvents() {
    const one = rollout();
    const good = one.good ? "tag good" : "tag bad";
    const rewards = one.rewards.map(([name, value]) => text(name) + " " + value.toFixed(2)).join(" · ");
    byId("events").replaceChildren(
      el("h2", "", "Rollout " + (one.rollout + 1) + " of " + group().rollouts.length),
      el("div", "tags", el("span", good, text(one.outcome)), el("span", "tag", text(one.stop)),
        el("span", "tag", rewards ? "reward: " + rewards : "rewards not recorded")),
      el("ol", "", ...one.events.map(eventItem)));
  }

  function draw() {
    drawBar();
    drawRequest();
    drawEvents();
  }

  // --- input ------------------------------------------------------------------------------------------------------

  const KEYS = { ArrowLeft: ["step", -1], ArrowRight: ["step", 1], ArrowUp: ["group", -1], ArrowDown: ["group", 1], k: ["rollout", -1], j: ["rollout", 1] };

  document.addEventListener("keydown", (press) => {
    if (press.ctrlKey || press.metaKey || press.altKey || press.target instanceof HTMLSelectElement) return;
    if (KEYS[press.key]) go(KEYS[press.key][0], at[KEYS[press.key][0]] + KEYS[press.key][1]);
    else if (/^[1-9]$/.test(press.key) && Number(press.key) <= group().rollouts.length) go("rollout", Number(press.key) - 1);
    else if (press.key === "Home") go("step", 0);
    else if (press.key === "End") go("step", steps.length - 1);
    else return;
    press.preventDefault();
  });
  for (const name of ["step", "group"]) {
    byId(name).addEventListener("change", (event) => {
      event.target.blur(); // so that the keys work again
      go(name, Number(event.target.value));
    });
  }
  for (const button of document.querySelectorAll("[data-move]")) {
    button.addEventListener("click", () => go(button.dataset.move, at[button.dataset.move] + Number(button.dataset.by)));
  }
  window.addEventListener("hashchange", () => { if (location.hash !== hash()) { readHash(); show(); } });

  for (const id of ["bar", "keys", "request", "legend", "events"]) byId(id).hidden = false;
  readHash();
  drawLegend();
  show();
})();
