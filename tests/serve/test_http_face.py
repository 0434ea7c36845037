"""The parts of the HTTP face that the openai client does not show."""

from __future__ import annotations

import json
import socket
import threading

import httpx2
import pytest
from openai import OpenAI

from tests.serve.served_app import LIMIT_S, QUESTION, ServedApp


@pytest.fixture
def http(app: ServedApp) -> httpx2.Client:
    return httpx2.Client(base_url=app.url, timeout=LIMIT_S)


def test_health_and_version(http: httpx2.Client) -> None:
    assert http.get("/health").json() == {"status": "ok", "model": "demo"}
    assert set(http.get("/version").json()) == {"version", "ray", "torch"}
    assert "swagger" in http.get("/docs").text


def test_tokenize_and_back(http: httpx2.Client) -> None:
    text = "Grüße, 東京 🗼\n<|im_start|>"
    tokens = http.post("/tokenize", json={"model": "demo", "prompt": text}).json()
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] > 1000
    assert http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": text}
    chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()["tokens"]
    assert "<|im_start|>user\nhi<|im_end|>" in http.post("/detokenize", json={"tokens": chat}).json()["prompt"]


def test_request_ids_come_back_once(http: httpx2.Client) -> None:
    response = http.get("/health", headers={"x-request-id": "mine"})
    assert response.headers.get_list("x-request-id") == ["mine"]
    assert len(http.get("/health").headers["x-request-id"]) > 8


def test_the_event_stream_on_the_wire(http: httpx2.Client) -> None:
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 24,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    response = http.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, end = response.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert chunks[-1]["choices"] == []


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_stops_its_requests(app: ServedApp, client: OpenAI, stream: bool) -> None:
    before = app.wait_until_idle().num_output_tokens
    body = {"model": "demo", "prompt": "Once", "max_tokens": 1500, "n": 2, "ignore_eos": True, "stream": stream}
    with socket.create_connection((app.host, app.port), timeout=LIMIT_S) as connection:
        connection.sendall(raw_post("/v1/completions", body))
        app.wait_for(lambda stats: stats.num_running == 2)
        if stream:
            received = b""
            while b"data: " not in received:
                received += connection.recv(65536)
    after = app.wait_until_idle()
    assert after.num_output_tokens - before < 1500, "it ran to its end"


def test_a_stop_string_stops_the_engine(app: ServedApp, client: OpenAI) -> None:
    """The engine does not know of it: the ingress ends the request there."""
    before = app.wait_until_idle().num_output_tokens
    options = {"ignore_eos": True}
    answer = client.completions.create(
        model="demo", prompt="Count: one, two,", temperature=0, max_tokens=1500, stop=[","], extra_body=options
    )
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    after = app.wait_until_idle()
    assert answer.usage.completion_tokens <= after.num_output_tokens - before < 1000, "it ran to its end"


def test_a_client_that_goes_away_while_waiting(app: ServedApp, client: OpenAI) -> None:
    """In the queue behind those that run: it leaves it."""
    app.wait_until_idle()
    body = {"model": "demo", "prompt": "Once", "max_tokens": 1500, "n": 24, "ignore_eos": True}
    with socket.create_connection((app.host, app.port), timeout=LIMIT_S) as connection:
        connection.sendall(raw_post("/v1/completions", body))
        app.wait_for(lambda stats: stats.num_running == 16 and stats.num_waiting == 8)
    app.wait_until_idle()


def test_more_than_the_queue_holds_is_a_429(app: ServedApp, client: OpenAI) -> None:
    body = {"model": "demo", "prompt": "Once", "max_tokens": 400, "n": 80, "ignore_eos": True}
    with socket.create_connection((app.host, app.port), timeout=LIMIT_S) as connection:
        connection.sendall(raw_post("/v1/completions", body))
        app.wait_for(lambda stats: stats.num_running + stats.num_waiting == 80)
        for stream in (True, False):
            response = httpx2.post(
                f"{app.url}/v1/completions", json={"model": "demo", "prompt": "x", "stream": stream}, timeout=LIMIT_S
            )
            assert (response.status_code, response.json()["error"]["code"]) == (429, "queue_full")
            assert int(response.headers["retry-after"]) >= 1
    app.wait_until_idle()
    assert client.completions.create(model="demo", prompt="x", max_tokens=1).usage is not None


def test_many_at_once_say_what_each_says_alone(app: ServedApp, client: OpenAI) -> None:
    prompts = [f"Number {i} is" for i in range(12)]

    def run(prompt: str) -> str:
        return client.completions.create(model="demo", prompt=prompt, temperature=0, max_tokens=8).choices[0].text

    alone = [run(prompt) for prompt in prompts]
    together: dict[str, str] = {}
    threads = [threading.Thread(target=lambda p=prompt: together.update({p: run(p)})) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[prompt] for prompt in prompts] == alone


def raw_post(path: str, body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data
