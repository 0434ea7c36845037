from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from deployments.backend import Refusal
from deployments.decode import Decode
from deployments.settings import load_api_keys
from tests.unit.deployments.conftest import MakeClient
from tests.unit.deployments.scripted_backend import ScriptedBackend, say

BODY = {"model": "demo", "prompt": "hi", "max_tokens": 1}


@pytest.fixture
def locked(make_client: MakeClient) -> TestClient:
    return make_client(ScriptedBackend(say("a")), api_keys=frozenset({"key-1", "schlüssel"}))


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer key-2", "Bearer key-1x", "Basic key-1", "key-1", "\xff"]
)
def test_401_without_a_key(locked: TestClient, authorization: str | None) -> None:
    headers = {} if authorization is None else {b"authorization": authorization.encode("latin-1")}
    response = locked.post("/v1/completions", json=BODY, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("authorization", ["Bearer key-1", "bearer key-1", "Bearer schlüssel"])
def test_200_with_one(locked: TestClient, authorization: str) -> None:
    response = locked.post("/v1/completions", json=BODY, headers={b"authorization": authorization.encode()})
    assert response.status_code == 200


def test_who_watches_over_the_server_needs_none(locked: TestClient) -> None:
    for path in ("/health", "/version", "/docs", "/openapi.json"):
        assert locked.get(path).status_code == 200, path
    assert locked.get("/v1/models").status_code == 401
    assert locked.get("/nope").status_code == 401


def test_the_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\nkey-1\n\n  key-2  \n")
    assert load_api_keys(path) == {"key-1", "key-2"}
    assert load_api_keys(None) == frozenset()
    path.write_text("# none\n\n")
    with pytest.raises(ValueError, match="no key"):
        load_api_keys(path)
    with pytest.raises(ValueError, match="cannot read"):
        load_api_keys(tmp_path / "missing")


@pytest.mark.parametrize("announced", [True, False])
def test_413_at_the_limit(make_client: MakeClient, announced: bool) -> None:
    client = make_client(ScriptedBackend(say("a")), max_body_bytes=2048)

    def post(size: int) -> int:
        body = b'{"model": "demo", "prompt": "' + b"x" * (size - 31) + b'"}'
        assert len(body) == size

        def pieces() -> Iterator[bytes]:
            yield body[:1000]
            yield body[1000:]

        content = body if announced else pieces()
        headers = {"content-type": "application/json"}
        return client.post("/v1/completions", content=content, headers=headers).status_code

    assert [post(2048), post(2049)] == [200, 413]


def test_health_follows_the_model(make_client: MakeClient, client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok", "model": "demo"}
    down = make_client(ScriptedBackend([], info=Refusal(503, "model_unavailable", "gone", retry_after_s=5)))
    for path in ("/health", "/v1/models"):
        response = down.get(path)
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert response.json()["error"]["message"] == "gone"


def test_models_and_version(client: TestClient, decode: Decode) -> None:
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("demo", "model", 512)
    assert client.get("/v1/models/demo").json() == card
    assert set(client.get("/version").json()) == {"version", "ray", "torch"}
