"""Tool understanding: tool document -> verified Python function (AutoTools paper, section 4.2)."""

from collections.abc import Iterator
from typing import Any

from autotools.schema import ToolId, ToolSpec, VerifiedFunction
from data_synthesis.inputs import Inputs
from data_synthesis.records import chat, code_block, record

SYSTEM_TEXT = "Write a Python function that calls the documented tool."


def tool_document(spec: ToolSpec, name: str) -> str:
    """The document as a model reads it. The server address stays out: it changes per run and is not the tool's."""
    lines = [f"function: {name}", f"request: {spec.method} {spec.path}", f"description: {spec.description}"]
    for parameter in spec.parameters:
        words = [parameter.location, parameter.type, "required" if parameter.required else "optional"]
        if parameter.enum:
            words.append("one of " + " | ".join(map(str, parameter.enum)))
        if parameter.default is not None:
            words.append(f"default {parameter.default}")
        text = f": {parameter.description}" if parameter.description else ""
        lines.append(f"parameter {parameter.name} ({', '.join(words)}){text}")
    lines += [f"note: {note}" for note in spec.notes]
    if spec.response is not None:
        lines.append(f"response: {_shape(spec.response)}")
    return "\n".join(lines)


def understanding_records(inputs: Inputs, tools: list[ToolId]) -> Iterator[dict[str, Any]]:
    """One record per verified function of ``tools``."""
    by_id = inputs.by_id
    for tool in tools:
        function: VerifiedFunction = inputs.functions[tool]
        document = tool_document(by_id[tool], function.name)
        yield record(
            f"understanding/{tool}",
            "understanding",
            "toolworld",
            chat(SYSTEM_TEXT, document, code_block(function.source)),
        )


def _shape(template: Any) -> str:
    """Type template in few characters: ``{price: number, items: [{id: string}]}``."""
    if isinstance(template, dict):
        return "{" + ", ".join(f"{key}: {_shape(value)}" for key, value in template.items()) + "}"
    if isinstance(template, list):
        return "[" + ", ".join(map(_shape, template)) + "]"
    return str(template)
