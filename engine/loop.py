"""The engine in a thread of its own: submit from anywhere, tokens come by callback, a crash answers everyone."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from engine.engine import Engine, EngineStats
from engine.outputs import TokenDelta
from engine.request import EngineRequest

logger = logging.getLogger(__name__)

Deliver = Callable[[TokenDelta], None]
# How often an idle loop looks up by itself. Work wakes it at once.
IDLE_WAKE_S = 1.0


class QueueFullError(Exception):
    """The engine has as many requests as it is set to take; try again later."""


class EngineDeadError(Exception):
    """The engine's loop has ended, by a crash or by `stop`."""


class EngineLoop:
    """Steps an engine while it has work.

    `deliver` is called on the loop's thread with each delta of its request; the last one has a finish_reason. It must
    return at once and not raise. Every method may be called from any thread.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, Deliver] = {}
        self._arrivals: deque[EngineRequest] = deque()
        self._aborts: deque[str] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._progress_at = time.monotonic()
        self.error: BaseException | None = None
        self._stats = engine.stats()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: EngineRequest, deliver: Deliver) -> None:
        """Queue a request.

        Raises:
            InvalidParameterError: it could never be served.
            QueueFullError: max_num_seqs + max_waiting requests are open.
            EngineDeadError: nothing will be served any more.
        """
        self._engine.check_request(request)
        config = self._engine.config
        with self._changed:
            if self._stopping or self.error is not None:
                raise EngineDeadError(
                    f"the engine has stopped: {self.error!r}" if self.error else "the engine has stopped"
                )
            if len(self._open) >= config.max_num_seqs + config.max_waiting:
                raise QueueFullError(f"{len(self._open)} requests are running or waiting")
            assert request.request_id not in self._open, f"request id {request.request_id} is in use"
            self._open[request.request_id] = deliver
            self._arrivals.append(request)
            self._changed.notify()

    def abort(self, request_id: str) -> None:
        """End a request before the next step; a request that has ended already is left in peace."""
        with self._changed:
            if request_id in self._open:
                self._aborts.append(request_id)
                self._changed.notify()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the loop after the step it is in; open requests are aborted."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def stalled_s(self) -> float:
        """Seconds since the last finished step while there is work; 0 when idle."""
        return time.monotonic() - self._progress_at if self._open else 0.0

    def stats(self) -> EngineStats:
        """As of the end of the last step."""
        return self._stats

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._take_in()
                for delta in self._engine.step():
                    self._deliver(delta)
                self._stats = self._engine.stats()
                self._progress_at = time.monotonic()
                if not self._engine.has_work:
                    self._engine.check_integrity()
        except BaseException as error:
            logger.exception("the engine's loop crashed")
            self.error = error
        finally:
            self._end_all()

    def _wait_for_work(self) -> bool:
        """Block until there is something to do; False once the loop is to end."""
        with self._changed:
            while not (self._stopping or self._arrivals or self._aborts or self._engine.has_work):
                self._changed.wait(IDLE_WAKE_S)
                self._progress_at = time.monotonic()
            return not self._stopping

    def _take_in(self) -> None:
        with self._changed:
            arrivals, aborts = list(self._arrivals), list(self._aborts)
            self._arrivals.clear()
            self._aborts.clear()
        for request in arrivals:
            self._engine.add_request(request)
        for request_id in aborts:
            delta = self._engine.abort(request_id)
            if delta is not None:
                self._deliver(delta)

    def _deliver(self, delta: TokenDelta) -> None:
        with self._changed:
            deliver = self._open[delta.request_id]
            if delta.finish_reason is not None:
                del self._open[delta.request_id]
        try:
            deliver(delta)
        except Exception:
            # A consumer whose event loop is gone must not take the others with it.
            logger.exception("request %s: its consumer failed, the request is aborted", delta.request_id)
            self.abort(delta.request_id)

    def _end_all(self) -> None:
        """Answer everyone still waiting."""
        with self._changed:
            self._stopping = True
            ids = list(self._open)
        message = "the engine has stopped" if self.error is None else f"the engine crashed: {self.error!r}"
        for request_id in ids:
            self._deliver(TokenDelta(request_id, finish_reason="error", error=message))
