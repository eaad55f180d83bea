"""Verification on a stub service: only the undamaged function may pass; the comparison itself is hand-worked."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from autotools.encapsulate import encapsulate, library_source
from autotools.errors import SandboxError
from autotools.program import ProgramRunner
from autotools.schema import ToolId, ToolParameter, ToolSpec
from autotools.verify import Case, first_difference, template_mismatch, verify

PRICES = {"H-1": 10.5, "H-2": 20}
TOOL = ToolId(category="Travel", tool="hotel", api="price")
SPEC = ToolSpec(
    id=TOOL, tool_name="hotel", api_name="price", description="price of a hotel", path="/hotels/{hotel_id}/price",
    parameters=(
        ToolParameter(name="hotel_id", location="path", required=True),
        ToolParameter(name="nights", type="integer"),
    ),
    response={"hotel_id": "string", "price": "number"},
)  # fmt: skip
# From the table, by hand; the service below is a second, separate implementation.
CASES = {
    TOOL: [
        Case({"hotel_id": "H-1"}, {"hotel_id": "H-1", "price": 10.5}),
        ({"hotel_id": "H-2", "nights": 3}, {"hotel_id": "H-2", "price": 60}),
    ]
}


class Service(BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        parts = path.strip("/").split("/")
        known = dict(item.split("=") for item in query.split("&") if item)
        if parts[:1] != ["hotels"] or parts[2:] not in (["price"], ["rate"]) or set(known) - {"nights"}:
            return self.reply(404, {"error": {"message": "no such route or parameter"}})
        if parts[1] == "BROKEN":
            return self.reply(503, {})
        price = PRICES[parts[1]] * int(known.get("nights", 1)) + (parts[2] == "rate")
        self.reply(200, {"hotel_id": parts[1], "price": price})

    def reply(self, status, content):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def base_url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def judge(base_url, functions, cases=CASES, specs=()):
    with ProgramRunner(library_source(functions), base_url) as runner:
        return verify(functions, cases, runner, specs)[0]


def test_the_undamaged_function_is_verified(base_url):
    verdict = judge(base_url, encapsulate([SPEC]), specs=[SPEC])
    assert (verdict.verified, verdict.checks, verdict.reason) == (True, 2, "")


def renamed(name, new):
    parameters = tuple(p.model_copy(update={"name": new}) if p.name == name else p for p in SPEC.parameters)
    return {"parameters": parameters}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"path": "/hotels/{hotel_id}/rate"}, "price is 11.5, the record says 10.5"),  # a near-duplicate that answers
        ({"path": "/hotels/{hotel_id}/cost"}, "ToolError: 404"),
        ({"method": "BREW"}, "unknown verb"),
        (renamed("nights", "days"), "unexpected keyword"),
        ({"parameters": SPEC.parameters[:1]}, "unexpected keyword"),
        ({"response": {"hotel_id": "string", "price": "string"}}, "price is float, documented as string"),
        ({"response": {"hotel_id": "string", "cost": "number"}}, "lacks 'cost'"),
    ],
)
def test_damaged_documents_do_not_pass(base_url, damage, said):
    broken = SPEC.model_copy(update=damage)
    verdict = judge(base_url, encapsulate([broken]), specs=[broken])
    assert not verdict.verified and said in verdict.reason


@pytest.mark.parametrize(
    ("body", "checks"),
    [
        ("return {'hotel_id': 'H-1', 'price': 10.5}", 1),  # right once: a constant is caught by the second case
        ("return None", 0),
        ("raise ValueError('x')", 0),
        ("print('H-1 10.5')", 0),
        ("import os; os._exit(0)", 0),
    ],
)
def test_damaged_functions_do_not_pass(base_url, body, checks):
    (good,) = encapsulate([SPEC])
    source = f"def {good.name}(hotel_id: str, nights: int | None = None) -> dict:\n    {body}\n"
    broken = good.model_copy(update={"source": source})
    verdict = judge(base_url, [broken])
    assert (verdict.verified, verdict.checks) == (False, checks) and verdict.reason
    # With the document at hand, the same functions are refused before any call.
    assert judge(base_url, [broken], specs=[SPEC]).checks == 0


def test_without_cases_or_source_nothing_is_verified(base_url):
    functions = encapsulate([SPEC])
    assert judge(base_url, functions, cases={}).reason == "no case to check it with"
    empty = [functions[0].model_copy(update={"source": "", "reason": "no path"})]
    assert judge(base_url, empty).reason == "no path"


def test_a_failing_service_is_no_verdict(base_url):
    cases = {TOOL: [Case({"hotel_id": "BROKEN"}, {})]}
    with pytest.raises(SandboxError, match="503"):
        judge(base_url, encapsulate([SPEC]), cases=cases)


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (1, 1.0, ""),
        (0.1 + 0.2, 0.3, ""),
        (1, True, "value is true"),
        (1, 1.001, "value is 1.001"),
        ("1", 1, "value is 1"),
        (None, 0, "value is 0"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "value.a[1].b is 3, the record says 2"),
        ({"a": 1}, {"a": 1, "b": 2}, "has keys ['a', 'b']"),
        ([1, 2], [2, 1], "value[0] is 2"),
        ([1], [1, 1], "has 2 items"),
    ],
)
def test_first_difference(expected, got, said):
    found = first_difference(expected, got)
    assert found.startswith(said) if said.startswith("value is") else said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("template", "value", "fits"),
    [
        ("integer", 3, True), ("integer", 3.5, False), ("number", 3, True), ("number", True, False),
        ("boolean", True, True), ("string", None, True), ([], [1, "a"], True), (["integer"], [1, "a"], False),
        ({"a": ["string"]}, {"a": [], "more": 1}, True), ({"a": "string"}, {}, False), ({}, [], False),
    ],
)  # fmt: skip
def test_template_mismatch(template, value, fits):
    assert (template_mismatch(template, value) == "") is fits
