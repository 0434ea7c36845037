"""Whether a served model answers, asked over HTTP as a client would."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

if TYPE_CHECKING:
    from deployments.launch_config import LaunchConfig

QUESTION = "What is the capital of France? Answer briefly."
_ANSWER_LIMIT_S = 120.0


def is_healthy(config: LaunchConfig) -> bool:
    try:
        with _opener().open(f"{config.url}/health", timeout=10) as response:
            return bool(response.status == 200)
    except (URLError, OSError, HTTPException):
        return False


def first_answer(config: LaunchConfig) -> Iterator[str]:
    """The answer to `QUESTION`, piece by piece.

    Raises:
        ValueError: there was none; says why.
    """
    request = Request(f"{config.url}/v1/chat/completions", json.dumps(_body(config)).encode(), _headers(config))
    said = ""
    try:
        with _opener().open(request, timeout=_ANSWER_LIMIT_S) as response:
            for line in response:
                text = _text(line.decode())
                said += text
                yield text
    except (URLError, OSError, HTTPException) as error:
        raise ValueError(f"the model did not answer: {error}") from None
    if not said.strip():
        raise ValueError("the model answered with nothing")


def curl_line(config: LaunchConfig) -> str:
    headers = {**_headers(config), **({"Authorization": "Bearer KEY"} if config.api_key else {})}
    options = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items())
    body = shlex.quote(json.dumps(_body(config)))
    return f"curl -N {config.url}/v1/chat/completions {options} -d {body}"


def _body(config: LaunchConfig) -> dict[str, object]:
    return {
        "model": config.settings.model.model_id,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 64,
        "stream": True,
    }


def _headers(config: LaunchConfig) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    return headers if config.api_key is None else {**headers, "Authorization": f"Bearer {config.api_key}"}


def _text(line: str) -> str:
    """What one line of the event stream adds.

    Raises:
        ValueError: it is an error.
    """
    data = line.removeprefix("data: ").strip()
    if not data or data == "[DONE]":
        return ""
    event = json.loads(data)
    if "error" in event:
        raise ValueError(f"the model did not answer: {event['error']['message']}")
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


def _opener() -> OpenerDirector:
    """Straight to the server, whatever proxies the environment names."""
    return build_opener(ProxyHandler({}))
