"""Client of an OpenAI-compatible endpoint (``http://HOST:PORT/v1``): many chat completions at once, asked again.

Contract: every request gets a reply or a reason why there is none. A reason is never an empty reply. What no repetition
can mend (a refused key, an address where there is no such service or model) stops everything with ProviderError.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from autotools.errors import ConfigError, ProviderError
from autotools.llm.replies import Reply, read_reply

REFUSED_FOR_GOOD = {301, 302, 303, 307, 308, 401, 403, 404, 405}
SEVERAL_SHOWN = 5  # of the models that an endpoint serves


@dataclass(frozen=True, kw_only=True)
class EndpointSettings:
    """Config section ``endpoint``: for every policy behind a URL."""

    model: str = field(
        default="", metadata={"help": "name of the model; default: what #NAME of the URL says, or the only one"}
    )
    key_env: str = field(default="", metadata={"help": "NAME of the environment variable that holds the API key"})
    concurrency: int = field(default=16, metadata={"help": "requests at a time"})
    attempts: int = field(
        default=5, metadata={"help": "tries of one request (again on 408, 409, 425, 429, 5xx, timeouts)"}
    )
    backoff_s: float = field(default=1.0, metadata={"help": "first pause; doubles, times 0.5 to 1 at random"})
    max_backoff_s: float = field(default=30.0, metadata={"help": "longest pause, also where the server asks for more"})
    attempt_timeout_s: float = field(default=180.0, metadata={"help": "limit of one try"})
    total_timeout_s: float = field(default=900.0, metadata={"help": "limit of one request with all its tries"})
    extra: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "more fields of each request; null takes one away (max_tokens, tools ...)"},
    )

    def __post_init__(self) -> None:
        for name in ("concurrency", "attempts", "attempt_timeout_s", "total_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("backoff_s", "max_backoff_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")


def split_url(source: str) -> tuple[str, str]:
    """``http://host:1/v1#name`` -> address without a slash at its end, and the model's name ("" if none is given)."""
    address, _, model = source.partition("#")
    return address.rstrip("/"), model


def check_url(source: str) -> None:
    """Raise ConfigError for an address with a password (it would be written into the run's files), or with the path of
    one request. A password is not repeated."""
    address, _ = split_url(source)
    try:
        host = urlsplit(address).netloc
    except ValueError as error:
        raise ConfigError(f"{address!r} is no address ({error}); write http://HOST:PORT/v1") from error
    if "@" in host:
        shown = host.rpartition("@")[2]
        raise ConfigError(
            f"the address of {shown} holds a user name or password, which a run writes down; leave it out and name the "
            "variable that holds a key: --endpoint.key_env NAME"
        )
    if "/chat/completions" in address:
        whole = address.partition("/chat/completions")[0]
        raise ConfigError(f"{address} is the address of one kind of request; leave that part out: {whole}")


def read_key(settings: EndpointSettings) -> str:
    """The API key, or "" where no variable is named. Raises ConfigError if the variable is not set."""
    if not settings.key_env:
        return ""
    key = os.environ.get(settings.key_env, "").strip()
    if not key:
        raise ConfigError(f"endpoint.key_env names the variable {settings.key_env!r}, which is not set or empty")
    return key


class ChatEndpoint:
    """Chat completions of one endpoint. ``counts``: requests, retries and failed ones, for logs.

    Raises ConfigError for a key that is not set, ProviderError if the model's name is asked for and no answer comes.
    """

    def __init__(self, source: str, settings: EndpointSettings | None = None, *, seed: int = 0) -> None:
        self.settings = settings or EndpointSettings()
        check_url(source)
        self.url, named = split_url(source)
        self._key = read_key(self.settings)
        self._random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.model = named or self.settings.model or asyncio.run(self._only_model())

    def complete(self, bodies: Sequence[dict[str, Any]]) -> list[Reply | str]:
        """One reply per request, in order, or the reason (text) why there is none after the last try.

        Raises ProviderError if the endpoint refuses for good: no other request would fare better.
        """
        return asyncio.run(self._complete(bodies))

    async def _complete(self, bodies: Sequence[dict[str, Any]]) -> list[Reply | str]:
        gate = asyncio.Semaphore(self.settings.concurrency)
        async with self._session() as session:

            async def one(body: dict[str, Any]) -> Reply | str:
                async with gate:
                    return await self._ask(session, "POST", "/chat/completions", self._whole(body), read_reply)

            return list(await asyncio.gather(*(one(body) for body in bodies)))

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        fields = {"model": self.model, **body, **self.settings.extra}
        return {name: value for name, value in fields.items() if value is not None}

    async def _only_model(self) -> str:
        async with self._session() as session:
            found = await self._ask(session, "GET", "/models", None, _model_names)
        if isinstance(found, str):
            raise ProviderError(
                f"endpoint {self.url} does not say which model it serves ({found}); write {self.url}#NAME"
            )
        if len(found) != 1:
            some = ", ".join(found[:SEVERAL_SHOWN]) + (" ..." if len(found) > SEVERAL_SHOWN else "")
            raise ProviderError(f"endpoint {self.url} serves {len(found)} models ({some}); choose one: {self.url}#NAME")
        return found[0]

    def _session(self) -> Any:
        import aiohttp

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),  # the gate limits: waiting there is not part of a try
            headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
            timeout=aiohttp.ClientTimeout(total=self.settings.attempt_timeout_s),
        )

    async def _ask(self, session: Any, verb: str, path: str, body: dict[str, Any] | None, read: Any) -> Any:
        """What ``read`` makes of the JSON answer, or the last reason as text."""
        self.counts["requests"] += 1
        reason = "no answer yet"
        try:
            async with asyncio.timeout(self.settings.total_timeout_s):
                for attempt in range(1, self.settings.attempts + 1):
                    status, reason, least_s = 0, "", 0.0
                    try:
                        status, text, least_s = await self._send(session, verb, path, body)
                        if status == 200:
                            return read(json.loads(text))
                        reason = f"HTTP {status}: {_message(text)}"
                    except (
                        OSError,
                        TimeoutError,
                        ValueError,
                        RecursionError,
                    ) as error:  # aiohttp's are OSErrors or not
                        reason = self._clean(f"{type(error).__name__}: {error}")
                    if status in REFUSED_FOR_GOOD:
                        raise ProviderError(self._for_good(status, path, reason))
                    if 400 <= status < 500 and status not in (408, 409, 425, 429):
                        break  # this very request is refused (too long, for example); others may do
                    if attempt < self.settings.attempts:
                        self.counts["retries"] += 1
                        await asyncio.sleep(self._pause(attempt, least_s))
        except TimeoutError:
            reason = f"{self.settings.total_timeout_s:g} s are over; last: {reason}"
        self.counts["failed"] += 1
        return self._clean(reason)

    async def _send(self, session: Any, verb: str, path: str, body: Any) -> tuple[int, bytes, float]:
        import aiohttp

        try:
            async with session.request(verb, self.url + path, json=body, allow_redirects=False) as response:
                least = response.headers.get("Retry-After", "")
                return response.status, await response.read(), float(least) if least.isdigit() else 0.0
        except aiohttp.InvalidURL as error:
            raise ProviderError(f"endpoint {self.url!r} is no address; write http://HOST:PORT/v1") from error
        except aiohttp.ClientError as error:
            raise OSError(f"{type(error).__name__}: {error}") from error

    def _pause(self, attempt: int, least_s: float) -> float:
        grown = max(self.settings.backoff_s * 2 ** (attempt - 1), least_s)
        return min(grown, self.settings.max_backoff_s) * (0.5 + 0.5 * self._random.random())

    def _for_good(self, status: int, path: str, reason: str) -> str:
        text = f"endpoint {self.url}{path}: {self._clean(reason)}"
        if status in (401, 403) and self._key:
            return f"{text}; the key in the variable {self.settings.key_env} was refused"
        if status in (401, 403):
            return f"{text}; name the variable that holds a key for it: --endpoint.key_env NAME"
        if status == 404:
            return f"{text}; an address mostly ends in /v1, and a model is named as the endpoint's /models lists it"
        return f"{text}; this is not the address of such a service"

    def _clean(self, reason: str) -> str:
        """One short line without the key, which a server may repeat."""
        line = " ".join(reason.split())
        return (line.replace(self._key, "***") if self._key else line)[:300]


def _model_names(answer: Any) -> list[str]:
    rows = answer.get("data") if isinstance(answer, dict) else None
    names = [row.get("id") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = [name for name in names if isinstance(name, str) and name]
    if not names:
        raise ValueError("its list of models is empty")
    return names


def _message(text: bytes) -> str:
    """The message of an error body, in the forms that servers use; else its beginning."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text.decode("utf-8", "replace")[:200]
    error = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return str(error)[:200]
