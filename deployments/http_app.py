"""The FastAPI app: routes, their OpenAPI page, and the order of what stands before them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from deployments.errors import install_error_handlers
from deployments.middleware import ApiKeyCheck, BodyLimit, ErrorBoundary
from deployments.openai_api import ChatCompletionRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from deployments.responses import (
    ChatCompletion,
    Completion,
    Detokenized,
    ErrorBody,
    Health,
    ModelCard,
    ModelList,
    Tokens,
    Version,
)
from deployments.service import OpenAIService

# Routes read their own bodies, to answer in OpenAI's error shape; so the page is told here what they read.
_BODIES: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatCompletionRequest,
    "/v1/completions": CompletionRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}
_ERRORS: dict[int | str, dict[str, object]] = {
    "4XX": {"model": ErrorBody, "description": "The request is at fault; `param` names the field."},
    "5XX": {"model": ErrorBody, "description": "The server is; with Retry-After where trying again may help."},
}


def build_http_app(service: OpenAIService, api_keys: frozenset[str]) -> FastAPI:
    app = FastAPI(title="Tokenyard", version=_version(), redoc_url=None, responses=_ERRORS)
    install_error_handlers(app)
    # The last added is the first to see a request.
    app.add_middleware(BodyLimit, max_body_bytes=service.settings.max_body_bytes)
    app.add_middleware(ApiKeyCheck, api_keys=api_keys)
    app.add_middleware(ErrorBoundary)
    _add_generation_routes(app, service)
    _add_model_routes(app, service)
    _add_status_routes(app, service)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend the page
    return app


def _add_generation_routes(app: FastAPI, service: OpenAIService) -> None:
    @app.post("/v1/chat/completions", response_model=ChatCompletion)
    async def chat_completions(request: Request) -> Response:
        """The model's next message in a chat; with `stream`, as server-sent events."""
        return await service.chat(request)

    @app.post("/v1/completions", response_model=Completion)
    async def completions(request: Request) -> Response:
        """What follows one or several prompts; with `stream`, as server-sent events."""
        return await service.complete(request)

    @app.post("/tokenize", response_model=Tokens)
    async def tokenize(request: Request) -> Response:
        """Token ids of a text or of a chat in the model's template."""
        return await service.tokenize(request)

    @app.post("/detokenize", response_model=Detokenized)
    async def detokenize(request: Request) -> Response:
        """The text of token ids."""
        return await service.detokenize(request)


def _add_model_routes(app: FastAPI, service: OpenAIService) -> None:
    @app.get("/v1/models")
    async def list_models() -> ModelList:
        return {"object": "list", "data": [await service.model_card(service.model_id)]}

    @app.get("/v1/models/{model_id:path}")
    async def retrieve_model(model_id: str) -> ModelCard:
        return await service.model_card(model_id)


def _add_status_routes(app: FastAPI, service: OpenAIService) -> None:
    @app.get("/health")
    async def health() -> Health:
        """200 when the model answers, 503 when not."""
        info = await service.ready_model()
        return {"status": "ok", "model": info.model_id}

    @app.get("/version")
    async def show_version() -> Version:
        return {"version": _version(), "ray": version("ray"), "torch": version("torch")}


def _openapi(app: FastAPI) -> dict[str, object]:
    """FastAPI's page with the bodies of `_BODIES` written in."""
    if app.openapi_schema is None:
        page = get_openapi(title=app.title, version=app.version, routes=app.routes)
        modes = [(model, "validation") for model in _BODIES.values()]
        refs, definitions = models_json_schema(modes, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        page["components"]["schemas"].update(definitions["$defs"])
        for path, model in _BODIES.items():
            content = {"application/json": {"schema": refs[model, "validation"]}}
            page["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
        app.openapi_schema = page
    return app.openapi_schema


def _version() -> str:
    """Of the installed package; on a cluster that was sent the sources alone, there is none."""
    try:
        return version("tokenyard")
    except PackageNotFoundError:
        return "unknown"
