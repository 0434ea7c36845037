"""One HTTP replica: the FastAPI app over a handle to the decode replicas."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from fastapi import FastAPI
from ray.exceptions import RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from deployments.backend import ModelInfo, Refusal
from deployments.decode import Decode
from deployments.http_app import build_http_app
from deployments.service import OpenAIService
from deployments.settings import Settings, load_api_keys
from engine import EngineRequest, TokenDelta
from models import resolve_model
from models.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)


class Ingress:
    """Speaks HTTP. `app.py` wraps it with `serve.ingress`, which asks for the app once the replica is built."""

    def __init__(self, settings: Settings, decode: DeploymentHandle[Decode]) -> None:
        self._api_keys = load_api_keys(settings.http.api_keys_file)
        self._service = OpenAIService(
            model_id=settings.model.model_id,
            tokenizer=load_tokenizer(resolve_model(settings.model.path)),
            backend=ReplicaBackend(decode),
            settings=settings.http,
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_http_app(self._service, self._api_keys)


class ReplicaBackend:
    """The decode replicas, through Serve. What goes wrong on the way becomes a Refusal."""

    def __init__(self, decode: DeploymentHandle[Decode]) -> None:
        self._decode = decode
        self._streaming = decode.options(stream=True)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta | Refusal, None]:
        response = self._streaming.generate.remote(request)
        assert isinstance(response, DeploymentResponseGenerator), "the handle streams"
        ended = False
        try:
            async for item in response:
                ended = isinstance(item, Refusal) or item.finish_reason is not None
                yield item
        except (RayError, RayServeException) as error:
            ended = True
            yield _refusal(error)
        finally:
            if not ended:
                response.cancel()  # type: ignore[no-untyped-call]  # ends the generator on the replica, whose `finally` aborts the request

    async def describe(self) -> ModelInfo | Refusal:
        try:
            answer: ModelInfo | Refusal = await self._decode.describe.remote()
        except (RayError, RayServeException) as error:
            return _refusal(error)
        return answer


def _refusal(error: RayError | RayServeException) -> Refusal:
    if isinstance(error, BackPressureError):
        return Refusal(429, "queue_full", "The server is busy.", retry_after_s=1)
    logger.error("no answer from a decode replica: %r", error)
    return Refusal(503, "model_unavailable", "The model is not available at the moment.", retry_after_s=5)
