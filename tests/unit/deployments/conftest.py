from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from deployments.backend import Backend
from deployments.decode import Decode
from deployments.http_app import build_http_app
from deployments.service import OpenAIService
from deployments.settings import HttpSettings, load_settings
from models.tokenizer import Tokenizer, load_tokenizer

MakeClient = Callable[..., TestClient]


@pytest.fixture(scope="session")
def tokenizer(tiny_mixtral: Path) -> Tokenizer:
    return load_tokenizer(tiny_mixtral)


@pytest.fixture(scope="session")
def decode(tiny_mixtral: Path) -> Iterator[Decode]:
    """A real engine on a tiny model: 259 ids, one a byte, and 512 tokens at most."""
    settings = load_settings(
        {
            "model": {"path": str(tiny_mixtral), "served_name": "demo"},
            "engine": {"kv_cache_gib": 0.02, "max_num_seqs": 4, "max_waiting": 200, "num_threads": 1},
        }
    )
    decode = Decode(settings)
    yield decode
    decode.stop()


@pytest.fixture
def make_client(tokenizer: Tokenizer) -> MakeClient:
    """The HTTP app over any backend, without Ray."""

    def make(backend: Backend, api_keys: frozenset[str] = frozenset(), **http: float) -> TestClient:
        service = OpenAIService("demo", tokenizer, backend, HttpSettings.model_validate(http))
        return TestClient(build_http_app(service, api_keys))

    return make


@pytest.fixture
def client(make_client: MakeClient, decode: Decode) -> TestClient:
    return make_client(decode)
