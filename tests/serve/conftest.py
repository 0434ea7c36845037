from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.local_ray import local_ray, prepare_environment

prepare_environment()  # before anything imports ray

from openai import OpenAI  # noqa: E402
from ray import serve  # noqa: E402

from deployments.app import build_app  # noqa: E402
from tests.serve.served_app import ServedApp, free_port  # noqa: E402

ARGS = {
    "model": {"path": "demo", "dtype": "float32"},
    "engine": {"kv_cache_gib": 0.25, "max_num_seqs": 16, "max_waiting": 64},
    "decode": {"num_cpus": 1},
    "ingress": {"num_cpus": 0.5},
}


@pytest.fixture(scope="session")
def app() -> Iterator[ServedApp]:
    """The demo model behind Ray Serve, once for all tests."""
    host, port = "127.0.0.1", free_port()
    temp_dir = Path(tempfile.mkdtemp(prefix="ty-"))
    try:
        with local_ray(temp_dir):
            serve.start(http_options={"host": host, "port": port})
            serve.run(build_app(ARGS), name="tokenyard", route_prefix="/")
            yield ServedApp(host, port, "tokenyard")
    finally:
        shutil.rmtree(temp_dir, ignore_errors=True)


@pytest.fixture
def client(app: ServedApp) -> Iterator[OpenAI]:
    with app.openai() as client:
        yield client
    app.wait_until_idle()  # every test leaves no request and no block behind
