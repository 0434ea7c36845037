"""What each route does, on any `Backend`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deployments.backend import Backend, ModelInfo, Refusal
from deployments.body import read_body
from deployments.chat import chat_chunks, whole_chat
from deployments.completions import CompletionAnswer
from deployments.errors import ApiError
from deployments.generation import Event, run_choices
from deployments.job import Job, open_job
from deployments.openai_api import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from deployments.prompts import completion_prompts, detokenize, tokenize_chat, tokenize_text
from deployments.responses import ModelCard
from deployments.sampling import chat_params, completion_params
from deployments.settings import HttpSettings
from deployments.streaming import EventStreamResponse, begin, server_sent, until_disconnect
from models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class OpenAIService:
    """Serves one model under `model_id`."""

    model_id: str
    tokenizer: Tokenizer
    backend: Backend
    settings: HttpSettings
    started: int = field(default_factory=lambda: int(time.time()))

    async def chat(self, request: Request) -> Response:
        body = await read_body(request, ChatCompletionRequest)
        self._require_model(body.model)
        params = chat_params(body)
        self._require_choices(params.n, "n")
        prompt = tuple(await tokenize_chat(self.tokenizer, body.messages))
        job = open_job("chatcmpl", body, [prompt], params)
        events = self._run(job)
        try:
            if body.stream:
                begun = await until_disconnect(request.receive, begin(events))
                return EventStreamResponse(server_sent(chat_chunks(begun, job, self.tokenizer)), events)
            return JSONResponse(await until_disconnect(request.receive, whole_chat(events, job, self.tokenizer)))
        except ApiError as error:
            error.param = _chat_param(body, error.param)
            raise

    async def complete(self, request: Request) -> Response:
        body = await read_body(request, CompletionRequest)
        self._require_model(body.model)
        params = completion_params(body)
        prompts = await completion_prompts(self.tokenizer, body)
        self._require_choices(len(prompts) * params.n, "prompt" if len(prompts) > 1 else "n")
        job = open_job("cmpl", body, [prompt.token_ids for prompt in prompts], params)
        answer = CompletionAnswer(job, body, prompts, self.tokenizer)
        events = self._run(job)
        if body.stream:
            begun = await until_disconnect(request.receive, begin(events))
            return EventStreamResponse(server_sent(answer.chunks(begun)), events)
        return JSONResponse(await until_disconnect(request.receive, answer.whole(events)))

    async def tokenize(self, request: Request) -> Response:
        body = await read_body(request, TokenizeRequest)
        self._require_model(body.model)
        if body.messages is not None:
            tokens = await tokenize_chat(self.tokenizer, body.messages)
        else:
            assert body.prompt is not None
            tokens = await tokenize_text(self.tokenizer, body.prompt, add_special_tokens=body.add_special_tokens)
        info = await self.ready_model()
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": info.max_request_tokens})

    async def detokenize(self, request: Request) -> Response:
        body = await read_body(request, DetokenizeRequest)
        self._require_model(body.model)
        return JSONResponse({"prompt": await detokenize(self.tokenizer, body.tokens, param="tokens")})

    async def model_card(self, model_id: str) -> ModelCard:
        self._require_model(model_id)
        info = await self.ready_model()
        return {
            "id": self.model_id,
            "object": "model",
            "created": self.started,
            "owned_by": "tokenyard",
            "max_model_len": info.max_request_tokens,
        }

    async def ready_model(self) -> ModelInfo:
        """What the model says of itself.

        Raises:
            ApiError: 503, when nothing answers within the health deadline.
        """
        try:
            async with asyncio.timeout(self.settings.health_timeout_s):
                info = await self.backend.describe()
        except TimeoutError:
            info = Refusal(503, "model_unavailable", "The model does not answer.", retry_after_s=5)
        if isinstance(info, Refusal):
            raise ApiError.from_refusal(info)
        return info

    def _run(self, job: Job) -> AsyncGenerator[Event, None]:
        return run_choices(self.backend, self.tokenizer, job.entries, self.settings.request_timeout_s)

    def _require_model(self, model: str | None) -> None:
        if model is not None and model != self.model_id:
            message = f"The model {model!r} does not exist; this server has {self.model_id!r}."
            raise ApiError(404, message, param="model", code="model_not_found")

    def _require_choices(self, num_choices: int, param: str) -> None:
        if num_choices > self.settings.max_choices:
            message = f"One request may have {self.settings.max_choices} choices (prompts x n), got {num_choices}."
            raise ApiError(400, message, param=param, code="invalid_value")


def _chat_param(body: ChatCompletionRequest, param: str | None) -> str | None:
    """The chat's name for a field that the engine knows by another."""
    if param == "prompt":
        return "messages"
    return "max_completion_tokens" if param == "max_tokens" and body.max_completion_tokens is not None else param
