from __future__ import annotations

import httpx2
from openai import OpenAI

from tests.serve.bad_requests import BAD_REQUESTS
from tests.serve.served_app import LIMIT_S, ServedApp


def test_each_is_refused_and_the_server_lives_on(app: ServedApp, client: OpenAI) -> None:
    before = app.wait_until_idle()
    wrong: list[str] = []
    with httpx2.Client(base_url=app.url, timeout=LIMIT_S) as http:
        for bad in BAD_REQUESTS:
            response = http.post(bad.path, content=bad.body, headers={"content-type": bad.content_type})
            error = response.json()["error"]
            got = (response.status_code, error["param"], error["code"])
            if got != (bad.status, bad.param, bad.code) or set(error) != {"message", "type", "param", "code"}:
                wrong.append(f"{bad.name}: {response.status_code} {error}")
        assert http.get("/health").status_code == 200
    assert not wrong, "\n".join(wrong)
    after = app.wait_until_idle()
    assert after.num_output_tokens == before.num_output_tokens
    assert client.completions.create(model="demo", prompt="hi", max_tokens=1).usage is not None


def test_a_body_too_large_without_a_length(app: ServedApp) -> None:
    def pieces() -> object:
        for _ in range(160):
            yield b"x" * 65536

    headers = {"content-type": "application/json"}
    response = httpx2.post(f"{app.url}/v1/completions", content=pieces(), headers=headers, timeout=LIMIT_S)  # type: ignore[arg-type]
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
    assert httpx2.get(f"{app.url}/health").status_code == 200
