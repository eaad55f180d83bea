"""One search request, read from JSON and checked against the server's limits."""

import json
from dataclasses import dataclass
from typing import Any

KEYS = ("query", "category", "queries", "categories", "k")


class Refusal(Exception):
    """A request that is not answered: HTTP status, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers or {}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Largest request that is accepted."""

    max_queries: int = 4096
    max_query_chars: int = 20_000
    max_body_bytes: int = 16_000_000
    max_k: int = 1000


@dataclass(frozen=True)
class SearchRequest:
    """``categories`` is as long as ``queries``, or None: no restriction at all."""

    queries: list[str]
    categories: list[str | None] | None
    k: int


def read_request(body: bytes, limits: Limits) -> SearchRequest:
    """Parse a body. Raises Refusal 400 (malformed; names key and value) or 413 (over a limit)."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _bad(f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise _bad(f"the body must be a JSON object, not {type(content).__name__}")
    if unknown := sorted(set(content) - set(KEYS)):
        raise _bad(f"unknown key {unknown[0][:100]!r}; known: {', '.join(KEYS)}")
    if ("query" in content) == ("queries" in content):
        raise _bad("give either 'query' (a text) or 'queries' (a list of texts)")
    one = "query" in content
    if ("categories" if one else "category") in content:
        raise _bad("'category' belongs to 'query', 'categories' to 'queries'")
    queries = [content["query"]] if one else content["queries"]
    _check_queries(queries, limits)
    categories = [content.get("category")] if one else content.get("categories")
    _check_categories(categories, len(queries), limits)
    k = content.get("k", 5)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= limits.max_k:
        raise _bad(f"'k' must be a whole number from 1 to {limits.max_k}, not {str(k)[:100]}")
    return SearchRequest(queries, categories, k)


def _check_queries(queries: Any, limits: Limits) -> None:
    if not isinstance(queries, list) or not queries:
        raise _bad("'queries' must be a list with at least one text")
    if len(queries) > limits.max_queries:
        raise Refusal(413, "too_large", f"{len(queries)} queries, at most {limits.max_queries} go into one request")
    for number, query in enumerate(queries):
        if not isinstance(query, str):
            raise _bad(f"query {number} is not a text but {type(query).__name__}")
        if len(query) > limits.max_query_chars:
            what = f"query {number} has {len(query)} characters, at most {limits.max_query_chars} are read"
            raise Refusal(413, "too_large", what)
        try:
            query.encode()
        except UnicodeEncodeError:
            raise _bad(f"query {number} holds half a surrogate pair, which is no text") from None


def _check_categories(categories: Any, count: int, limits: Limits) -> None:
    if categories is None:
        return
    if not isinstance(categories, list) or len(categories) != count:
        raise _bad(f"'categories' must be null or a list of {count}, one (or null) per query")
    for number, category in enumerate(categories):
        if category is not None and (not isinstance(category, str) or len(category) > limits.max_query_chars):
            raise _bad(f"category {number} is neither null nor a text of at most {limits.max_query_chars} characters")


def _bad(message: str) -> Refusal:
    return Refusal(400, "malformed", message)
