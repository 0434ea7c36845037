from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from deployments.decode import Decode
from tests.serve.bad_requests import BAD_REQUESTS, BadRequest


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=lambda bad: bad.name)
def test_is_refused_in_openais_shape(client: TestClient, decode: Decode, bad: BadRequest) -> None:
    response = client.post(bad.path, content=bad.body, headers={"content-type": bad.content_type})
    assert response.status_code == bad.status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (bad.param, bad.code)
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert "Traceback" not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("GET", "/v1/models/gpt-9", 404, "model_not_found"),
    ],
)
def test_wrong_urls_too(client: TestClient, method: str, path: str, status: int, code: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_fields_that_change_nothing_are_accepted(client: TestClient) -> None:
    harmless = {
        "user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "parallel_tool_calls": True,
        "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "stop": None, "logit_bias": None,
        "seed": None, "stream_options": None, "functions": None, "best_of": 1,
    }  # fmt: skip
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": None},
        {"role": "tool", "content": "42", "tool_call_id": "x"},
    ]
    body = {"model": "demo", "messages": messages, "max_tokens": 1, **harmless}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["prompt_tokens"] == len("<>be\nbrief" + "<>hi" + "<>" + "<>42" + "<>") - 5


def test_a_content_type_may_say_more(client: TestClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = client.post("/tokenize", content=b'{"prompt": "ab"}', headers=headers)
    assert (response.status_code, response.json()["count"]) == (200, 2)
