"""The endpoint client against a server that misbehaves on purpose: a reply, a reason, or a stop; never an empty one."""

import threading
import time

import pytest

from autotools.errors import ConfigError, ProviderError
from autotools.llm.endpoint import ChatEndpoint, EndpointSettings, split_url
from autotools.llm.replies import Reply

FAST = {"attempts": 3, "backoff_s": 0.01, "max_backoff_s": 0.03, "attempt_timeout_s": 5.0, "total_timeout_s": 20.0}


def said(text, **more):
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | more]}


def body(text):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 7}


def word(request):
    return request["messages"][0]["content"]


class Steps:
    """The n-th request with one word gets the n-th step of that word; the last one stays."""

    def __init__(self, **steps):
        self.steps, self.count, self.lock = steps, dict.fromkeys(steps, 0), threading.Lock()

    def __call__(self, request):
        name = word(request)
        with self.lock:
            number = self.count[name]
            self.count[name] += 1
        step = self.steps[name][min(number, len(self.steps[name]) - 1)]
        return step() if callable(step) else step


def sleeping(seconds):
    def step():
        time.sleep(seconds)
        return 200, said("late")

    return step


def test_replies_keep_their_order_and_no_more_requests_run_than_allowed(chat_server):
    def script(request):
        time.sleep(0.02 if int(word(request)) % 2 else 0.0)
        return 200, said(f"to {word(request)}")

    server = chat_server(script)
    endpoint = ChatEndpoint(f"{server.url}/#m", EndpointSettings(concurrency=3, **FAST))
    replies = endpoint.complete([body(str(i)) for i in range(20)])
    assert replies == [Reply(content=f"to {i}") for i in range(20)]
    assert 2 <= server.most_at_once <= 3
    path, request, headers = server.asked[0]
    assert path == "/v1/chat/completions" and "Authorization" not in headers
    assert request == {"model": "m", **body(word(request))}
    assert endpoint.counts == {"requests": 20} and endpoint.complete([]) == []


def test_what_may_pass_is_asked_again_and_the_others_are_not_touched(chat_server):
    busy, error = (429, {"error": {"message": "slow down"}}), (500, b"oh no")
    steps = Steps(
        good=[(200, said("good"))],
        once=[error, (200, said("once"))],
        twice=[busy, (503, b""), (200, said("twice"))],
        slow=[sleeping(2.5), (200, said("slow"))],
        garbled=[(200, b"{broken"), (200, {"choices": []}), (200, said("garbled"))],
        never=[error],
        nonsense=[(200, {"object": "error", "message": "no"})],
        filtered=[(200, said(None, finish_reason="content_filter"))],
        long=[(400, {"object": "error", "message": "maximum context length is 9 tokens"})],
    )
    server = chat_server(steps)
    endpoint = ChatEndpoint(f"{server.url}#m", EndpointSettings(**FAST | {"attempt_timeout_s": 1.5}))
    found = dict(zip(steps.steps, endpoint.complete([body(name) for name in steps.steps]), strict=True))
    for name in ("good", "once", "twice", "slow", "garbled"):
        assert found[name] == Reply(content=name)
    assert found["never"] == "HTTP 500: oh no"
    assert found["nonsense"].startswith("ValueError: no chat completion: {'object'")
    assert "content filter" in found["filtered"]
    assert found["long"] == "HTTP 400: maximum context length is 9 tokens"
    tries = {"good": 1, "once": 2, "twice": 3, "slow": 2, "garbled": 3, "never": 3, "nonsense": 3, "filtered": 3}
    assert steps.count == {**tries, "long": 1}  # asking again does not make it shorter
    assert endpoint.counts == {"requests": 9, "failed": 4, "retries": sum(tries.values()) - len(tries)}


def test_the_time_of_one_request_is_limited_and_the_pauses_grow_to_what_the_server_asks(chat_server):
    server = chat_server(lambda request: (503, b"busy", {"Retry-After": "1"}))
    patience = {"attempts": 50, "backoff_s": 0.0, "max_backoff_s": 0.2, "total_timeout_s": 0.7}
    start = time.perf_counter()
    (reason,) = ChatEndpoint(f"{server.url}#m", EndpointSettings(**patience)).complete([body("x")])
    assert reason == "0.7 s are over; last: HTTP 503: busy"
    assert 0.6 < time.perf_counter() - start < 3
    assert 4 <= len(server.asked) <= 8  # 0.7 s in pauses of 0.1 to 0.2 s, which Retry-After 1 was cut to


def test_nobody_there_is_a_reason():
    endpoint = ChatEndpoint("http://127.0.0.1:9/v1#m", EndpointSettings(**FAST))
    (reason,) = endpoint.complete([body("x")])
    assert reason.startswith("OSError: ClientConnectorError: Cannot connect to host 127.0.0.1:9")
    with pytest.raises(ProviderError, match=r"127.0.0.1:9/v1 does not say which model it serves \(OSError"):
        ChatEndpoint("http://127.0.0.1:9/v1", EndpointSettings(**FAST))


@pytest.mark.parametrize(
    ("status", "hint"),
    [(401, "the key in the variable SOME_KEY was refused"), (403, "SOME_KEY was refused"),
     (404, "as the endpoint's /models lists it"),
     (307, "not the address of such a service")],
)  # fmt: skip
def test_what_is_refused_for_good_stops_at_once_and_hides_the_key(chat_server, monkeypatch, status, hint):
    monkeypatch.setenv("SOME_KEY", "sk-hidden")
    server = chat_server(lambda request: (status, {"error": {"message": "bad key sk-hidden"}}, {"Location": "/x"}))
    endpoint = ChatEndpoint(f"{server.url}#m", EndpointSettings(key_env="SOME_KEY", concurrency=1, **FAST))
    with pytest.raises(ProviderError) as caught:
        endpoint.complete([body(str(i)) for i in range(50)])
    assert f"HTTP {status}: bad key ***" in str(caught.value) and hint in str(caught.value)
    assert len(server.asked) < 10 and server.asked[0][2]["Authorization"] == "Bearer sk-hidden"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_key_that_is_not_set_is_said_before_anything_is_asked(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("SOME_KEY", raising=False)
    else:
        monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(ConfigError, match="key_env names the variable 'SOME_KEY', which is not set or empty"):
        ChatEndpoint("http://127.0.0.1:9/v1#m", EndpointSettings(key_env="SOME_KEY"))


def test_the_only_model_is_found_and_several_are_listed(chat_server):
    models = ["small"]
    server = chat_server(lambda request: (200, {"data": [{"id": name} for name in models]}))
    assert ChatEndpoint(server.url, EndpointSettings(**FAST)).model == "small"
    assert server.asked[0][0] == "/v1/models"
    assert ChatEndpoint(server.url, EndpointSettings(model="mine", **FAST)).model == "mine"
    assert ChatEndpoint(f"{server.url}#its", EndpointSettings(model="mine", **FAST)).model == "its"
    models.append("large")
    with pytest.raises(ProviderError, match=r"serves 2 models \(small, large\); choose one: http://.*/v1#NAME"):
        ChatEndpoint(server.url, EndpointSettings(**FAST))
    models.clear()
    with pytest.raises(ProviderError, match="its list of models is empty"):
        ChatEndpoint(server.url, EndpointSettings(**FAST))


def test_more_fields_of_a_request(chat_server):
    server = chat_server(lambda request: (200, said("x")))
    extra = {"max_tokens": None, "max_completion_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}
    ChatEndpoint(f"{server.url}#m", EndpointSettings(extra=extra)).complete([body("x")])
    sent = server.asked[0][1]
    assert "max_tokens" not in sent and sent["max_completion_tokens"] == 9
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}


def test_addresses_and_settings():
    assert split_url("http://h:1/v1/#a/b") == ("http://h:1/v1", "a/b")
    assert split_url("https://h/v1") == ("https://h/v1", "")
    for wrong in ({"attempts": 0}, {"concurrency": 0}, {"total_timeout_s": 0}, {"backoff_s": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            EndpointSettings(**wrong)
