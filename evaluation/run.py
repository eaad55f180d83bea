"""``python -m evaluation.run``: play the requests of a suite with each policy, greedily, and score them.

    python -m evaluation.run --world runs/q/world --out runs/q/eval --policies one=bm25 before=runs/q/sft
    python -m evaluation.run --suite stabletoolbench --corpus FILE --queries DIR --policy runs/q/rl --out runs/stable
    python -m evaluation.run --suite toollens --corpus FILE --queries DIR --policy http://127.0.0.1:8000/v1#NAME --out D

A policy's source is ``bm25`` (one BM25 search with the raw request, its first k hits are the answer), ``one_shot`` (the
same with the run's own engine), a CHECKPOINT (model folder or hub name), ``vllm:CHECKPOINT`` (vLLM's offline engine) or
an OpenAI-compatible endpoint. All but the first two play the one search episode, with ``--encoder`` as its engine;
``rag:`` before one of them (``rag:CHECKPOINT``): no search of its own, ``rag.documents`` stand in its prompt instead.

Suites: ``toolworld`` (a world folder); ``stabletoolbench`` and ``toollens`` (original files, or a world folder with
them). Writes below OUT ``NAME/predictions.jsonl`` (one Trajectory per task, as they come), ``NAME/failed.jsonl``
(requests that got no answer: they have no prediction and count as failed), ``tasks.jsonl``, ``rejected.jsonl``,
``metrics.json`` and, last, ``manifest.json``. ``--resume`` plays what is missing. Paired differences are made for every
two policies, the later named minus the earlier.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotools.config import load_config, run_main
from autotools.llm.endpoint import EndpointSettings
from autotools.locking import only_process
from autotools.rundir import check_run, open_run, sha256_file, write_json, write_jsonl, write_manifest
from autotools.schema import Task
from autotools.search.episode import SearchSettings
from autotools.search.rag import RagSettings
from evaluation.one_shot import choose_k
from evaluation.playing import Predictions, check_inputs, corpus_sha256, play, record_inputs
from evaluation.policies import (
    BASELINES,
    OneShotPlayer,
    Player,
    check_policies,
    fingerprint,
    is_url,
    model_path,
    open_model,
    parse_policies,
)
from evaluation.run_inputs import MAY_DIFFER, EvalArgs, Inputs, input_files, read_inputs
from evaluation.selection import UNSEEN, compare, score_tasks, text_differences, text_table
from evaluation.suites import draw
from retriever import cpu_threads

LOW_ANSWERED_SHARE = 0.8  # below it a policy has probably collapsed into searching without end


def warn_of(label: str, predictions: Predictions, tasks: Sequence[Task], out: Path) -> None:
    """Say on stderr how many requests failed, and when few of the others were answered, with some ids to look at."""
    if predictions.failed:
        first = next(iter(predictions.failed.values()))
        print(
            f"warning: {label}: {len(predictions.failed)} of {len(tasks)} requests got no answer and count as failed, "
            f"see {out / label / 'failed.jsonl'} (first: {first}); --resume asks again",
            file=sys.stderr,
        )
    played = predictions.kept.values()
    silent = [t.task_id for t in played if t.selection is None]
    if played and (share := 1 - len(silent) / len(played)) < LOW_ANSWERED_SHARE:
        print(
            f"warning: {label} answered only {share:.0%} of the requests; not for example {silent[:3]}", file=sys.stderr
        )


def open_player(label: str, source: str, args: EvalArgs, inputs: Inputs) -> Player:
    """The player of one policy; a baseline chooses its k here. Raises DataError or ProviderError naming the policy."""
    table, dev = inputs.table, inputs.requests.dev
    if source not in BASELINES:
        return open_model(source, table, label)
    engine, kind = table.engine, "one search with the raw request"
    if source == "bm25":
        kind = "one BM25 search with the raw request"
        if args.encoder != "bm25":
            from retriever.bm25 import BM25Engine

            engine = BM25Engine(inputs.corpus.specs)
    if dev:
        k, by_k = choose_k(dev, engine)
        note = {"kind": kind, "k": k, "dev_f1_by_k": by_k}
    else:
        k = args.one_shot_k or table.search.top_k
        note = {"kind": kind, "k": k, "k_from": "one_shot_k" if args.one_shot_k else "search.top_k (no dev requests)"}
    return OneShotPlayer(engine, table.search.top_k, k, note)


def evaluate(args: EvalArgs, policies: dict[str, str], inputs: Inputs, out: Path) -> dict[str, Any]:
    """Play, write the predictions of every policy below ``out``, and return the content of ``metrics.json``."""
    rejected, set_aside = inputs.requests.rejected, inputs.set_aside
    write_jsonl(out / "rejected.jsonl", set_aside)
    if rejected:
        first = f"first: line {rejected[0]['line']}: {rejected[0]['reason']}"
        print(f"warning: {len(rejected)} tasks left out, see {out / 'rejected.jsonl'}; {first}", file=sys.stderr)
    if inputs.requests.note:
        print(f"note: {inputs.requests.note}", file=sys.stderr)
    tasks = draw(inputs.requests.tasks, args.limit, args.seed)
    record = {"corpus": corpus_sha256(inputs.corpus.specs), "engine": inputs.table.engine.describe()}
    record["policies"] = {name: fingerprint(source) for name, source in policies.items()}
    check_inputs(out, tasks, record)
    (out / "manifest.json").unlink(missing_ok=True)  # of a run that is resumed although it was complete
    runs, notes, failed = {}, {}, {}
    for name, source in policies.items():
        predictions, notes[name], seconds = play(
            lambda name=name, source=source: open_player(name, source, args, inputs),
            tasks,
            out / name,
            args.chunk_of(source, inputs.table.endpoint),
            label=name,
            begin=lambda: record_inputs(out, tasks, record),
        )
        runs[name] = score_tasks(predictions.kept.values(), tasks)
        failed[name] = len(tasks) - len(predictions.kept)
        warn_of(name, predictions, tasks, out)
        print(f"{name}: {len(tasks)} requests in {seconds:.1f} s", file=sys.stderr)
    counts: dict[str, Any] = {"read": len(inputs.requests.tasks) + len(rejected), "rejected": len(rejected)}
    counts |= {"played": len(tasks), "set_aside": dict(sorted(Counter(row["source"] for row in set_aside).items()))}
    if any(failed.values()):
        counts["failed"] = failed
    head = {"suite": args.suite, "split": args.split, "seed": args.seed, "counts": counts, "notes": notes}
    if inputs.requests.note:
        head["suite_note"] = inputs.requests.note
    return {**head, **compare(runs, seed=args.seed)}


def main(argv: list[str] | None = None) -> int:
    """Evaluate all policies and print their tables."""
    sections = {"": EvalArgs, "search": SearchSettings, "rag": RagSettings, "endpoint": EndpointSettings}
    config = load_config(argv, sections, prog="python -m evaluation.run", description=__doc__)
    args = config.top(EvalArgs)
    policies = parse_policies(args.policies, args.policy)
    if args.threads is not None or (args.encoder != "bm25" and not is_url(args.encoder)):
        cpu_threads.set_threads(args.threads)
    files = input_files(args)
    for path in files:
        sha256_file(path)  # a missing world is said before any folder is made
    claim: dict[str, Any] = {"resume": args.resume, "overwrite": args.overwrite, "free": MAY_DIFFER}
    if config.dry_run:
        check_policies(policies, config.section("endpoint"))
        check_run(args.out, config.resolved(), **claim)
        print(f"would play {args.split} of {args.queries or args.world} with {', '.join(policies)} into {args.out}")
        return 0
    inputs = read_inputs(args, config, policies)
    with only_process(args.out):
        run = open_run(args.out, config.resolved(), seed=args.seed, **claim)
        result = evaluate(args, policies, inputs, run.path)
        write_json(run.path / "metrics.json", result)
        manifests = [Path(model_path(source)) / "manifest.json" for source in policies.values()]
        files += [manifest for manifest in manifests if manifest.is_file()]
        write_manifest(run.path, stage="eval", inputs=files, counts=result["counts"], seed=args.seed)
    for name, table in result["policies"].items():
        print(f"\n{name}  ({result['notes'][name]['kind']})\n{text_table(table)}")
    for name, table in result["paired"].items():
        print(f"\n{name}, paired by task, 95 % interval (overall leaves {UNSEEN} out)\n{text_differences(table)}")
    print(f"\nwrote {run.path / 'metrics.json'}")
    return 0


if __name__ == "__main__":
    run_main(main)
