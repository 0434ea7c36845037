"""Errors in the shape OpenAI's clients read, whatever raised them."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from deployments.backend import Refusal
from deployments.responses import ErrorBody
from engine import InvalidParameterError

logger = logging.getLogger(__name__)


class ApiError(Exception):
    """A request that ends with an error response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @classmethod
    def from_refusal(cls, refusal: Refusal) -> ApiError:
        return cls(
            refusal.status,
            refusal.message,
            param=refusal.param,
            code=refusal.code,
            retry_after_s=refusal.retry_after_s,
        )

    @property
    def body(self) -> ErrorBody:
        return {
            "error": {
                "message": self.message,
                "type": _error_type(self.status),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body, status_code=self.status, headers=headers)


def internal_error() -> ApiError:
    """What a client learns of a fault of ours: nothing but that there was one. The log has the rest."""
    return ApiError(500, "The server had an error while processing your request.", code="internal_error")


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(InvalidParameterError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_exception)


async def _on_api_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error.response()


async def _on_invalid_parameter(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, InvalidParameterError)
    return ApiError(400, error.message, param=error.param, code="invalid_value").response()


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Starlette's own: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    message, code = {
        404: (f"Unknown request URL: {where}.", "unknown_url"),
        405: (f"Method not allowed: {where}.", "method_not_allowed"),
    }.get(error.status_code, (str(error.detail), None))
    response = ApiError(error.status_code, message, code=code).response()
    response.headers.update(error.headers or {})
    return response


def _error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
