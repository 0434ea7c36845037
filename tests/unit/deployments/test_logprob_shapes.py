from __future__ import annotations

import math

import pytest
from starlette.testclient import TestClient

from engine import TokenDelta, TokenLogprobs
from tests.unit.deployments.conftest import MakeClient
from tests.unit.deployments.scripted_backend import ScriptedBackend, byte_ids

PROMPT, ANSWER = "né", "aß!"


def entry(token_id: int, logprob: float) -> TokenLogprobs:
    return TokenLogprobs(token_id, logprob, ((byte_ids(b"z")[0], -0.25), (byte_ids(b"y")[0], -1.5)))


@pytest.fixture
def scripted(make_client: MakeClient) -> TestClient:
    """Says ANSWER with log probabilities -1, -2, ..., after a prompt with -10, -11, ..."""
    prompt, answer = byte_ids(PROMPT.encode()), byte_ids(ANSWER.encode())
    prompt_logprobs = (None, *(entry(token_id, -10.0 - i) for i, token_id in enumerate(prompt[1:])))
    deltas = [
        TokenDelta(
            "r",
            (token_id,),
            (entry(token_id, -1.0 - i),),
            finish_reason="length" if i == len(answer) - 1 else None,
            prompt_logprobs=prompt_logprobs if i == 0 else None,
        )
        for i, token_id in enumerate(answer)
    ]
    return make_client(ScriptedBackend(deltas))


def test_completion_offsets_count_characters(scripted: TestClient) -> None:
    body = {"model": "demo", "prompt": PROMPT, "logprobs": 1, "echo": True}
    choice = scripted.post("/v1/completions", json=body).json()["choices"][0]
    assert choice["text"] == PROMPT + ANSWER
    logprobs = choice["logprobs"]
    # n | two bytes of é | a | two bytes of ß | !
    assert logprobs["text_offset"] == [0, 1, 1, 2, 3, 3, 4]
    assert logprobs["token_logprobs"] == [None, -10.0, -11.0, -1.0, -2.0, -3.0, -4.0]
    assert logprobs["tokens"] == ["n", "�", "�", "a", "�", "�", "!"]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][3] == {"z": -0.25, "a": -1.0}


def test_streamed_completion_logprobs_are_the_same(scripted: TestClient) -> None:
    body = {"model": "demo", "prompt": PROMPT, "logprobs": 2, "echo": True}
    whole = scripted.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    lines = scripted.post("/v1/completions", json={**body, "stream": True}).text.split("\n\n")[:-2]
    import json  # noqa: PLC0415

    parts = [json.loads(line.removeprefix("data: "))["choices"][0]["logprobs"] for line in lines]
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [item for part in parts for item in part[key]] == whole[key]


def test_scoring_returns_the_prompt_alone(scripted: TestClient) -> None:
    body = {"model": "demo", "prompt": PROMPT, "logprobs": 0, "echo": True, "max_tokens": 0}
    answer = scripted.post("/v1/completions", json=body).json()
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (PROMPT, "length")
    assert choice["logprobs"]["token_logprobs"] == [None, -10.0, -11.0]
    assert answer["usage"]["completion_tokens"] == 0
    stream = scripted.post("/v1/completions", json={**body, "stream": True, "stream_options": {"include_usage": True}})
    assert '"completion_tokens":0' in stream.text


def test_chat_logprobs_have_bytes(scripted: TestClient) -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 2}
    content = scripted.post("/v1/chat/completions", json=body).json()["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in content).decode() == ANSWER
    assert [token["logprob"] for token in content] == [-1.0, -2.0, -3.0, -4.0, -5.0][: len(content)]
    assert [top["token"] for top in content[0]["top_logprobs"]] == ["z", "y"]
    assert content[0]["top_logprobs"][0]["bytes"] == [ord("z")]


def test_prompt_logprobs_are_by_id(scripted: TestClient) -> None:
    body = {"model": "demo", "prompt": PROMPT, "prompt_logprobs": 2}
    choice = scripted.post("/v1/completions", json=body).json()["choices"][0]
    first, second, _ = choice["prompt_logprobs"]
    assert first is None
    own = str(byte_ids(PROMPT.encode())[1])
    assert second[own]["logprob"] == -10.0
    assert len(second) == 3
    assert choice["logprobs"] is None


def test_an_impossible_token_is_still_json(make_client: MakeClient) -> None:
    delta = TokenDelta("r", (0,), (TokenLogprobs(0, -math.inf, ((1, -math.inf),)),), "length")
    client = make_client(ScriptedBackend([delta]))
    response = client.post("/v1/completions", json={"model": "demo", "prompt": "x", "logprobs": 1})
    assert response.json()["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0]


def test_real_scores_add_up(client: TestClient) -> None:
    """Scoring a text piece by piece: what the model says of its own greedy continuation is what it said drawing it."""
    drawn = client.post(
        "/v1/completions", json={"model": "demo", "prompt": [5, 6, 7], "max_tokens": 6, "temperature": 0, "logprobs": 0}
    ).json()["choices"][0]["logprobs"]
    tokens = client.post(
        "/v1/completions",
        json={"model": "demo", "prompt": [5, 6, 7], "max_tokens": 6, "temperature": 0, "logprobs": 0, "echo": True},
    ).json()["choices"][0]["logprobs"]
    assert tokens["token_logprobs"][3:] == pytest.approx(drawn["token_logprobs"], abs=1e-4)
