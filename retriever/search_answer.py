"""Reading the search server's answers: what does not hold exactly what was asked for is an error."""

import json
import math
from typing import Any

from autotools.errors import RetrieverError, ToolIdError
from autotools.schema import Hit, ToolId


def read_results(answer: dict[str, Any], count: int, k: int, where: str) -> list[list[Hit]]:
    """Hits of ``count`` queries, at most ``k`` each. Raises RetrieverError if the answer is anything else."""
    results = answer.get("results")
    if not isinstance(results, list) or len(results) != count:
        got = f"{len(results)} result lists" if isinstance(results, list) else "no result lists"
        raise RetrieverError(f"{where}: {count} queries, but the answer holds {got}")
    for number, hits in enumerate(results):
        if not isinstance(hits, list) or len(hits) > k:
            raise RetrieverError(f"{where}: result {number} is not a list of at most {k} hits")
    try:
        return [[_hit(hit) for hit in hits] for hits in results]
    except (KeyError, TypeError, AttributeError, ToolIdError, ValueError) as error:
        raise RetrieverError(f"{where}: a hit is not {{id, score, document}}: {str(error)[:200]}") from error


def _hit(hit: dict[str, Any]) -> Hit:
    score = hit["score"]
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError(f"score {score!r}")
    return Hit(id=ToolId.parse(hit["id"]), score=score, document=hit["document"])


def check_engine(first: dict[str, Any] | None, answer: dict[str, Any], where: str) -> dict[str, Any]:
    """The engine an answer comes from. Raises RetrieverError if it is not the ``first`` one, naming a field."""
    engine = answer.get("engine")
    if not isinstance(engine, dict):
        raise RetrieverError(f"{where}: the answer does not say which engine it comes from; is it a search server?")
    if first is not None and engine != first:
        field = next(key for key in sorted({*first, *engine}) if first.get(key) != engine.get(key))
        raise RetrieverError(
            f"{where}: the server now has another engine or corpus ({field}: {first.get(field)!r}, now "
            f"{engine.get(field)!r}); results of both must not be mixed: start the run anew or the old server again"
        )
    return engine


def read_error(text: bytes) -> tuple[str, str]:
    """(code, message) of an error answer; of one that is not the server's own: ("", its text)."""
    try:
        error = json.loads(text)["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return "", text[:200].decode("utf-8", "replace").strip()
