from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from deployments.backend import Refusal
from engine import TokenDelta
from tests.unit.deployments.conftest import MakeClient
from tests.unit.deployments.scripted_backend import ScriptedBackend, byte_ids, say

CHAT: dict[str, object] = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "stream": True}
COMPLETION: dict[str, object] = {"model": "demo", "prompt": "hi", "stream": True}


def lines(client: TestClient, path: str, body: dict[str, object]) -> list[str]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, end = response.text.split("\n\n")
    assert end == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event.removeprefix("data: ") for event in events]


def chunks(client: TestClient, path: str, body: dict[str, object]) -> list[dict]:  # type: ignore[type-arg]
    *data, done = lines(client, path, body)
    assert done == "[DONE]"
    return [json.loads(line) for line in data]


def test_chat_has_the_role_first_and_one_finish_reason(make_client: MakeClient) -> None:
    got = chunks(make_client(ScriptedBackend(say("héllo"))), "/v1/chat/completions", CHAT)
    deltas = [chunk["choices"][0]["delta"] for chunk in got]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all("role" not in delta for delta in deltas[1:])
    assert "".join(delta.get("content", "") for delta in deltas) == "héllo"
    assert "�" not in str(deltas)
    assert [chunk["choices"][0]["finish_reason"] for chunk in got] == [None] * (len(got) - 1) + ["stop"]
    assert len({chunk["id"] for chunk in got}) == 1
    assert {chunk["object"] for chunk in got} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in got)


def test_every_choice_has_its_role_and_its_end(make_client: MakeClient) -> None:
    got = chunks(make_client(ScriptedBackend(say("ab"))), "/v1/chat/completions", {**CHAT, "n": 3})
    choices = [chunk["choices"][0] for chunk in got]
    for index in range(3):
        mine = [choice for choice in choices if choice["index"] == index]
        assert [choice["delta"].get("role") for choice in mine] == ["assistant"] + [None] * (len(mine) - 1)
        assert "".join(choice["delta"].get("content", "") for choice in mine) == "ab"
        assert [choice["finish_reason"] for choice in mine if choice["finish_reason"]] == ["stop"]


def test_usage_comes_last_without_choices(make_client: MakeClient) -> None:
    backend = ScriptedBackend(say("abc", num_cached_tokens=2))
    body = {**CHAT, "stream_options": {"include_usage": True}}
    *before, last = chunks(make_client(backend), "/v1/chat/completions", body)
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in before)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 4,  # <user> h i <assistant>
        "completion_tokens": 3,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_usage_everywhere_counts_up(make_client: MakeClient) -> None:
    body = {**COMPLETION, "stream_options": {"continuous_usage_stats": True}}
    got = chunks(make_client(ScriptedBackend(say("abc"))), "/v1/completions", body)
    assert [chunk["usage"]["completion_tokens"] for chunk in got] == [1, 2, 3]
    assert all(chunk["choices"] for chunk in got)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stop_string_ends_the_request_in_the_engine(make_client: MakeClient, path: str) -> None:
    backend = ScriptedBackend([*say("one END two", finish_reason=None)])
    body = {**(CHAT if "chat" in path else COMPLETION), "stop": [" END"]}
    got = chunks(make_client(backend), path, body)
    texts = [
        chunk["choices"][0].get("text") or chunk["choices"][0].get("delta", {}).get("content", "") for chunk in got
    ]
    assert "".join(texts) == "one"
    assert got[-1]["choices"][0]["finish_reason"] == "stop"
    assert got[-1]["choices"][0]["stop_reason"] == " END"
    assert not backend.open


def test_echo_comes_first_and_once(make_client: MakeClient) -> None:
    got = chunks(make_client(ScriptedBackend(say("xy"))), "/v1/completions", {**COMPLETION, "echo": True})
    assert [chunk["choices"][0]["text"] for chunk in got] == ["hi", "x", "y"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (Refusal(429, "queue_full", "busy", retry_after_s=3), (429, "queue_full", "rate_limit_error")),
        (Refusal(400, "invalid_value", "long", param="prompt"), (400, "invalid_value", "invalid_request_error")),
        (TokenDelta("r", finish_reason="error", error="secret"), (500, "engine_error", "server_error")),
        (TokenDelta("r", finish_reason="abort"), (503, "aborted", "server_error")),
        (RuntimeError("secret"), (500, "internal_error", "server_error")),
    ],
)
def test_a_refusal_at_the_start_is_a_status(
    make_client: MakeClient, item: TokenDelta | Refusal | Exception, stream: bool, expected: tuple[int, str, str]
) -> None:
    backend = ScriptedBackend([item])
    response = make_client(backend).post("/v1/completions", json={**COMPLETION, "stream": stream})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == expected
    assert "secret" not in response.text
    assert response.headers.get("retry-after") == {429: "3", 503: "1"}.get(response.status_code)
    assert not backend.open


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_an_error_on_the_way_ends_the_stream_without_done(make_client: MakeClient, path: str) -> None:
    script = [*say("ab", finish_reason=None), TokenDelta("r", finish_reason="error", error="secret")]
    backend = ScriptedBackend(script)
    got = lines(make_client(backend), path, {**(CHAT if "chat" in path else COMPLETION), "n": 2})
    assert json.loads(got[-1])["error"]["code"] == "engine_error"
    assert "secret" not in got[-1]
    assert sum("error" in json.loads(line) for line in got) == 1
    assert not backend.open


@pytest.mark.parametrize("stream", [True, False])
def test_nothing_runs_past_its_deadline(make_client: MakeClient, stream: bool) -> None:
    backend = ScriptedBackend([])
    client = make_client(backend, request_timeout_s=0.05)
    response = client.post("/v1/completions", json={**COMPLETION, "stream": stream})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
    assert not backend.open


def test_choices_have_seeds_of_their_own_and_the_first_has_the_requests(make_client: MakeClient) -> None:
    backend = ScriptedBackend(say("a"))
    body = {"model": "demo", "prompt": ["x", "yz"], "n": 2, "seed": 7, "cache_salt": "s"}
    response = make_client(backend).post("/v1/completions", json=body)
    assert [choice["index"] for choice in response.json()["choices"]] == [0, 1, 2, 3]
    prompts = [list(request.prompt_token_ids) for request in backend.requests]
    assert prompts == [byte_ids(b"x")] * 2 + [byte_ids(b"yz")] * 2
    seeds = [request.params.seed for request in backend.requests]
    assert seeds[0] == seeds[2] == 7
    assert seeds[1] == seeds[3] != 7
    assert {request.cache_salt for request in backend.requests} == {"s"}
    assert response.json()["usage"]["prompt_tokens"] == 3
    assert response.json()["usage"]["completion_tokens"] == 4


def test_without_a_seed_each_request_draws_one(make_client: MakeClient) -> None:
    backend = ScriptedBackend(say("a"))
    client = make_client(backend)
    for _ in range(2):
        client.post("/v1/completions", json={"model": "demo", "prompt": "x"})
    assert backend.requests[0].params.seed != backend.requests[1].params.seed
    assert backend.requests[0].request_id != backend.requests[1].request_id
