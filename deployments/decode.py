"""One decode replica: an engine with its loop, and the way from its thread to the event loop."""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import AsyncGenerator, Sequence

from deployments.backend import ModelInfo, Refusal
from deployments.settings import Settings
from engine import (
    Engine,
    EngineDeadError,
    EngineLoop,
    EngineRequest,
    EngineStats,
    InvalidParameterError,
    QueueFullError,
    SamplingParams,
    TokenDelta,
)

logger = logging.getLogger(__name__)

# A step of the largest batch takes seconds at worst on a CPU: a loop that has work and ends no step for so long hangs.
STALL_LIMIT_S = 120.0
_WARM_UP_LIMIT_S = 300.0


class Decode:
    """Runs requests. Built, it has answered one: a replica that Serve calls ready is ready.

    Raises:
        ValueError: from the engine, for a model or settings that cannot be served.
    """

    def __init__(self, settings: Settings) -> None:
        self._model_id = settings.model.model_id
        self._engine = Engine(settings.engine_config())
        self._loop = EngineLoop(self._engine)
        self._loop.start()
        self._warm_up()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta | Refusal, None]:
        """Deltas as they come, those that are ready joined into one. Closing the generator aborts the request."""
        mailbox = _Mailbox(asyncio.get_running_loop())
        refusal = self._submit(request, mailbox)
        if refusal is not None:
            yield refusal
            return
        try:
            finished = False
            while not finished:
                delta = join(await mailbox.take())
                finished = delta.finish_reason is not None
                yield delta
        finally:
            self._loop.abort(request.request_id)

    async def describe(self) -> ModelInfo | Refusal:
        try:
            self.check_health()
        except RuntimeError as error:
            return Refusal(503, "model_unavailable", str(error), retry_after_s=5)
        return ModelInfo(
            model_id=self._model_id,
            max_request_tokens=self._engine.max_request_tokens,
        )

    def stats(self) -> EngineStats:
        return self._loop.stats()

    def check_health(self) -> None:
        """Called by Serve, which replaces the replica when it raises.

        Raises:
            RuntimeError: the loop has crashed or hangs.
        """
        if self._loop.error is not None:
            raise RuntimeError("The engine has crashed.")
        if self._loop.stalled_s > STALL_LIMIT_S:
            raise RuntimeError(f"The engine has work but has finished no step for {self._loop.stalled_s:.0f} s.")

    def stop(self) -> None:
        """End the loop; open requests are answered with an error."""
        self._loop.stop()

    def _submit(self, request: EngineRequest, mailbox: _Mailbox) -> Refusal | None:
        try:
            self._loop.submit(request, mailbox.put)
        except InvalidParameterError as error:
            return Refusal(400, "invalid_value", error.message, param=error.param)
        except QueueFullError as error:
            return Refusal(429, "queue_full", f"The server is busy: {error}.", retry_after_s=1)
        except EngineDeadError:
            return Refusal(503, "model_unavailable", "The engine has stopped.", retry_after_s=5)
        return None

    def _warm_up(self) -> None:
        """One token, so that lazy set-up falls on no user and a model that cannot run is found out now."""
        answers: queue.SimpleQueue[TokenDelta] = queue.SimpleQueue()
        params = SamplingParams(max_tokens=1, temperature=0.0, seed=0)
        self._loop.submit(EngineRequest("warm-up", (0,), params), answers.put)
        delta = answers.get(timeout=_WARM_UP_LIMIT_S)
        if delta.finish_reason == "error":
            raise RuntimeError(f"the engine failed its first token: {delta.error}")


class _Mailbox:
    """Deltas from the engine's thread, for one consumer on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._event_loop = loop
        self._deltas: list[TokenDelta] = []
        self._arrived = asyncio.Event()

    def put(self, delta: TokenDelta) -> None:
        """From any thread. Raises RuntimeError when the event loop has been closed."""
        self._event_loop.call_soon_threadsafe(self._put, delta)

    def _put(self, delta: TokenDelta) -> None:
        self._deltas.append(delta)
        self._arrived.set()

    async def take(self) -> list[TokenDelta]:
        """All that is there, at least one: the first token goes out at once, a slow reader gets several together."""
        await self._arrived.wait()
        self._arrived.clear()
        deltas, self._deltas = self._deltas, []
        return deltas


def join(deltas: Sequence[TokenDelta]) -> TokenDelta:
    """Consecutive deltas of one request as one."""
    first, last = deltas[0], deltas[-1]
    if first is last:
        return first
    return TokenDelta(
        request_id=first.request_id,
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        logprobs=None if first.logprobs is None else tuple(lp for delta in deltas for lp in delta.logprobs or ()),
        finish_reason=last.finish_reason,
        stop_token_id=last.stop_token_id,
        num_cached_tokens=last.num_cached_tokens,
        prompt_logprobs=first.prompt_logprobs,
        error=last.error,
    )
