"""The application under test, and what the tests ask of it besides HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from openai import OpenAI
from ray import serve

from engine import EngineStats

LIMIT_S = 60.0
QUESTION = "What is the capital of France? Answer briefly."


@dataclass(frozen=True)
class ServedApp:
    host: str
    port: int
    app_name: str

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def openai(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=LIMIT_S)

    def stats(self) -> EngineStats:
        handle = serve.get_deployment_handle("decode", self.app_name)
        stats: EngineStats = handle.stats.remote().result(timeout_s=LIMIT_S)
        return stats

    def wait_for(self, condition: Callable[[EngineStats], bool]) -> EngineStats:
        """The first stats that meet it."""
        deadline = time.monotonic() + LIMIT_S
        while not condition(stats := self.stats()):
            assert time.monotonic() < deadline, stats
            time.sleep(0.02)
        return stats

    def wait_until_idle(self) -> EngineStats:
        """No request, and every block free."""
        return self.wait_for(
            lambda s: s.num_running == s.num_waiting == 0 and s.num_free_blocks == s.num_blocks,
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
