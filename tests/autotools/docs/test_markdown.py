"""Markdown reader on hand-written pages in other people's styles, and on mutated ones."""

import random

import pytest
from markdown_it import MarkdownIt

from autotools.docs import AUTH_NOTE
from autotools.docs.markdown import read_markdown
from autotools.docs.markdown_blocks import blocks, escape, plain
from autotools.errors import ToolDocError
from toolworld.markdown_pages import markdown_documents
from toolworld.world import build_world

PAGE = """\
Pack & Send
===========

Parcels, tracked.  
They move.

Server: https://pack.invalid/v1/

No API key is needed, except where it is said.

## Overview

Prose with `code` and a list:

- **fast** delivery
- cheap

## POST /parcels/:ref/notes – Add a *note* ##

Adds a note. See [the guide](https://pack.invalid/guide).

Path parameters:

| Parameter | Type    | Description |
|:----------|:-------:|-------------|
| ref       | `str`   | number \\| code of the parcel |

Body:

* **text** (string, required) – what to say (e.g. `hi`)
* `stars` (int) - one of `1`, `2` or `3`; defaults to `2`
* `tags` (list of string, optional)

Returns:

```json
{"id": 7, "weight": 1.5, "lines": [{"at": "noon", "read": false}], "next": null}
```

**Errors**

- `stars` (int): out of range

### Delete

Needs an API key in the header `X-Pack-Key`.

| Name | Needed | Default |
|---|---|---|
| `deep` | maybe | - |
| `ref` | no | |

```bash
curl -s -X DELETE "https://pack.invalid/parcels/77" -H "Accept: */*"
```

## Empty

### Parameters

None.
"""


def test_fields_of_a_page_in_another_style():
    add, delete, empty = read_markdown(PAGE, "Logistics", "pack-send")
    assert [str(s.id) for s in (add, delete, empty)] == [
        "Logistics.pack_send.add_a_note", "Logistics.pack_send.delete", "Logistics.pack_send.empty",
    ]  # fmt: skip
    assert (add.tool_name, add.tool_description) == ("Pack & Send", "Parcels, tracked. They move.")
    assert (add.method, add.server, add.path) == ("POST", "https://pack.invalid/v1", "/parcels/{ref}/notes")
    assert (add.api_name, add.description) == ("Add a note", "Adds a note. See the guide.")
    told = [p.model_dump() for p in add.parameters]
    assert [tuple(p.values()) for p in told] == [
        ("ref", "path", "string", True, "number | code of the parcel", (), None, None),
        ("text", "body", "string", True, "what to say", (), None, "hi"),
        ("stars", "body", "integer", False, "", (1, 2, 3), 2, None),
        ("tags", "body", "array", False, "", (), None, None),
    ]
    lines = [{"at": "string", "read": "boolean"}]
    assert add.response == {"id": "integer", "weight": "number", "lines": lines, "next": None}
    assert add.notes == ("whether parameter 'stars' is required is not said; optional is guessed",)


def test_what_is_missing_is_noted():
    _, delete, empty = read_markdown(PAGE, "Logistics", "pack-send")
    assert (delete.method, delete.server, delete.path) == ("DELETE", "https://pack.invalid", "/parcels/77")
    assert [(p.name, p.location, p.type, p.required) for p in delete.parameters] == [
        ("deep", "query", "string", False), ("ref", "query", "string", False),
    ]  # fmt: skip
    notes = "\n".join(delete.notes)
    for part in ("taken from the example", "where parameter 'deep'", "type of parameter 'deep'", "'deep' is required",
                 "does not describe", f"{AUTH_NOTE} (header X-Pack-Key)"):  # fmt: skip
        assert part in notes
    assert "'ref' is required" not in notes
    assert (empty.method, empty.path, empty.parameters) == ("GET", "", ())
    assert "names no request" in empty.notes[0]


def test_equal_names_and_undeclared_variables():
    pages = [f"## Get it\n\n`GET /a/{{b}}`\n\ntext {number}\n\n" for number in (1, 2, 3, 2)]  # the last is a repeat
    page = "# T\n\n" + "".join(pages) + "## get_it_v2\n\n`GET /c`\n\nlast\n"
    specs = read_markdown(page, "C")
    ids = [s.id.api for s in specs]
    assert ids[:3] == ["get_it", "get_it_v2", "get_it_v3"] and len(set(ids)) == 4
    assert [p.name for p in specs[0].parameters] == ["b"] and "not declared" in specs[0].notes[0]
    assert "renamed" in specs[1].notes[-1]


@pytest.mark.parametrize(
    ("page", "category", "part"),
    [
        ("", "C", "no heading"),
        ("just prose, GET /x", "C", "no heading"),
        ("# T\n\n## News\n\nnothing\n", "C", "no section"),
        ("# T\n\n## a\n`GET /x`", " ", "category"),
        ("# !!!\n\n## a\n\n`GET /x`", "C", "'!!!'"),
        ("# T\n\n## ???\n\n`GET /x`", "C", "'???'"),
    ],
)
def test_other_text_is_refused_and_named(page, category, part):
    with pytest.raises(ToolDocError, match=part.replace("?", r"\?")):
        read_markdown(page, category)


def test_blocks_agree_with_a_markdown_library():
    """Oracle: markdown-it-py sees the same headings, fences, table cells on the world's pages."""
    parser = MarkdownIt("commonmark").enable("table")
    for text in (PAGE, *markdown_documents(build_world(0)).values()):
        tokens = parser.parse(text)
        names = {"heading_open": [], "th_open": [], "td_open": []}
        for token, inline in zip(tokens, tokens[1:], strict=False):
            if token.type in names:
                words = "".join(c.content for c in inline.children or [] if c.type in ("text", "code_inline"))
                names[token.type].append((token.tag, words))
        ours = blocks(text)
        assert [(f"h{b.level}", plain(b.text)) for b in ours if b.kind == "heading"] == names["heading_open"]
        cells = [[plain(c) for c in row] for b in ours if b.kind == "table" for row in b.rows]
        assert sorted(c for row in cells for c in row) == sorted(w for _, w in names["th_open"] + names["td_open"])
        assert [b.text for b in ours if b.kind == "fence"] == [
            t.content.removesuffix("\n") for t in tokens if t.type == "fence"
        ]


def test_escaped_text_comes_back():
    rng = random.Random(0)
    for _ in range(500):
        text = " ".join("".join(rng.choice("ab_*`\\|#[](<~1.-+=é") for _ in range(rng.randint(1, 9))).split())
        assert plain(escape(text)) == text, text


def test_mutated_pages_never_crash_the_reader():
    """500 pages with cut, doubled, swapped and foreign pieces: specs with sound names, or ToolDocError."""
    rng = random.Random(0)
    pages = list(markdown_documents(build_world(0)).values()) + [PAGE]
    pieces = ["|", "`", "```", "#", "\n", "---\n", "\\", "{", "}", "\x00", "\ud800", "é", "**", "<!--", "[", "\r\n",
              "9" * 5000, "NaN", "[" * 3000, "GET /", "| a |\n|--|\n"]  # fmt: skip
    read = refused = 0
    for _ in range(500):
        text = rng.choice(pages)
        for _ in range(rng.randint(1, 12)):
            a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            cut = b if rng.random() < 0.3 else min(b, a + 40)
            text = rng.choice((text[:a] + text[cut:], text[:a] + rng.choice(pieces) + text[a:], text[:cut] + text[a:]))
        try:
            specs = read_markdown(text, "C", "t")
        except ToolDocError:
            refused += 1
            continue
        read += 1
        assert len({s.id for s in specs}) == len(specs) > 0
        for spec in specs:
            assert spec.id.api and type(spec).model_validate_json(spec.model_dump_json()) == spec
    assert read > 300 and read + refused == 500


def test_reading_is_linear():
    """A page of 2 MB of any opening mark is read in seconds (a quadratic scan would take minutes)."""
    for mark in ("`", "*", "[", "| ", "_", "<!--", "- x\n", "default: `", "# ", "\\", "GET "):
        page = "# T\n\n## a\n\n`GET /x`\n\n- `p` (string): " + mark * (300_000 // len(mark))
        assert read_markdown(page, "C")
