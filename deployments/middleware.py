"""What every request passes before it reaches a route. Plain ASGI: Starlette's base class buffers streams."""

from __future__ import annotations

import hmac
import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.errors import ApiError, internal_error

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/health", "/version", "/docs", "/openapi.json"})

# A client that is still sending when the answer comes sees a reset, not the answer. So up to this many times the
# allowed size is read and thrown away first.
_DRAIN_FACTOR = 16


class ErrorBoundary:
    """The last to see an exception: it is logged here, and the client gets a 500 without the traceback.

    Starlette's own handler raises it again after answering, which Serve would answer a second time.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watch_send)
        except Exception as error:
            if not isinstance(error, ApiError):
                logger.exception("Request failed: %s", scope.get("path"))
            if started or scope["type"] != "http":
                raise
            answer = error if isinstance(error, ApiError) else internal_error()
            await answer.response()(scope, receive, send)


class ApiKeyCheck:
    """401 for a request without one of the keys. With no keys, everyone may ask."""

    def __init__(self, app: ASGIApp, *, api_keys: frozenset[str]) -> None:
        self.app = app
        self.api_keys = [key.encode() for key in sorted(api_keys)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.api_keys and scope["path"] not in OPEN_PATHS:
            self._check(Headers(scope=scope).get("authorization", ""))
        await self.app(scope, receive, send)

    def _check(self, authorization: str) -> None:
        scheme, _, key = authorization.partition(" ")
        given = key.strip().encode("latin-1")
        # Every key is compared, in constant time, so that timing tells nothing about any of them.
        matches = [hmac.compare_digest(given, api_key) for api_key in self.api_keys]
        if scheme.lower() != "bearer" or not any(matches):
            message = "Incorrect API key." if authorization else "No API key: send it as Authorization: Bearer KEY."
            raise ApiError(401, message, code="invalid_api_key")


class BodyLimit:
    """413 for a body of more than `max_body_bytes`, announced or not."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received = 0

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_body_bytes:
                await self._refuse(receive, received, more=message.get("more_body", False))
            return message

        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length) > self.max_body_bytes:
            await self._refuse(receive, 0, more=True)
        await self.app(scope, counting_receive, send)

    async def _refuse(self, receive: Receive, received: int, *, more: bool) -> None:
        while more and received < self.max_body_bytes * _DRAIN_FACTOR:
            message = await receive()
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
        raise ApiError(413, f"The body is larger than {self.max_body_bytes} bytes.", code="request_too_large")
