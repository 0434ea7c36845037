"""From the bytes of a request to a checked model, or an error that names the field at fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from deployments.errors import ApiError
from deployments.openai_api import IGNORED, UNSUPPORTED

M = TypeVar("M", bound=BaseModel)

# Parsing more than this takes long enough (0.5 ms and up) to be felt by the streams that share the event loop.
_LARGE_BODY = 64 * 1024


async def read_body(request: Request, model: type[M]) -> M:
    """The request's JSON body as a `model`.

    Raises:
        ApiError: 415 for another content type, 400 for what is no JSON or does not fit the model.
    """
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise ApiError(
            415, f"Content-Type must be application/json, got {content_type!r}.", code="unsupported_media_type"
        )
    raw = await request.body()
    if len(raw) > _LARGE_BODY:
        return await asyncio.to_thread(parse_body, raw, model)
    return parse_body(raw, model)


def parse_body(raw: bytes, model: type[M]) -> M:
    fields = _parse_object(raw)
    for name, harmless in UNSUPPORTED.items():
        if name in fields and name not in model.model_fields:
            value = fields.pop(name)
            if value is not None and value not in harmless:
                raise ApiError(400, f"{name} is not supported.", param=name, code="unsupported_parameter")
    known = {name: value for name, value in fields.items() if value is not None and name not in IGNORED}
    try:
        return model.model_validate(known)
    except ValidationError as error:
        raise _bad_field(error) from None


def _parse_object(raw: bytes) -> dict[str, object]:
    try:
        text = raw.decode("utf-8")
        value: object = json.loads(text, parse_constant=_reject_constant)
        if "\\u" in text:  # an escaped half of a surrogate pair is JSON, but no text that a tokenizer could read
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(400, f"The body is not valid UTF-8: {error.reason} at byte {error.start}.") from None
    except UnicodeEncodeError:
        raise ApiError(400, "The body has half of a surrogate pair (\\ud800 to \\udfff) in a string.") from None
    except RecursionError:
        raise ApiError(400, "The body is nested too deeply.") from None
    except ValueError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.")
    return value


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _bad_field(error: ValidationError) -> ApiError:
    """The most specific of pydantic's complaints: it comes from the deepest place."""
    worst = max(error.errors(include_url=False, include_context=False), key=lambda e: len(e["loc"]))
    param = _param(worst["loc"])
    if worst["type"] == "extra_forbidden":
        return ApiError(400, f"Unknown field: {param}.", param=param, code="unknown_parameter")
    code = "missing_required_parameter" if worst["type"] == "missing" else "invalid_value"
    return ApiError(400, f"{param}: {worst['msg'].removeprefix('Value error, ')}.", param=param, code=code)


def _param(loc: Sequence[int | str]) -> str:
    """`messages[0].role` from ("messages", 0, "role"); the names of union branches are left out.

    A field the client made up may have any name; it stands first.
    """
    path = str(loc[0])
    for part in loc[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part.islower() and part not in ("str", "int"):
            path += f".{part}"
    return path
