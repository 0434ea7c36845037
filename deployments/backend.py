"""What the HTTP face asks of whatever runs the model, so that it can be tested without Ray."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from engine import EngineRequest, TokenDelta


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not served, as a value: exceptions lose their type and gain a traceback between processes.

    `status` is an HTTP status, `code` OpenAI's short machine-readable word, `param` the field at fault.
    """

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a decode replica serves. `max_request_tokens` counts prompt and output together."""

    model_id: str
    max_request_tokens: int


class Backend(Protocol):
    """A running model. `Decode` is one in this process; `ReplicaBackend` reaches one through Ray Serve."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta | Refusal, None]:
        """Deltas until one has a finish reason, or a Refusal and no more. Closing it aborts the request."""
        ...

    async def describe(self) -> ModelInfo | Refusal:
        """What is served; a Refusal while nothing answers."""
        ...
