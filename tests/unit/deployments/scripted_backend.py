"""A model that says what the test wrote down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from deployments.backend import ModelInfo, Refusal
from engine import EngineRequest, TokenDelta


@dataclass
class ScriptedBackend:
    """Yields `script` for every request, then hangs if it had no end. `open` are the requests not yet closed."""

    script: Sequence[TokenDelta | Refusal | Exception]
    info: ModelInfo | Refusal = field(default_factory=lambda: ModelInfo("demo", 512))
    requests: list[EngineRequest] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta | Refusal, None]:
        self.requests.append(request)
        self.open.add(request.request_id)
        self.started.set()
        try:
            for item in self.script:
                if isinstance(item, Exception):
                    raise item
                yield item
                await asyncio.sleep(0)
            await asyncio.sleep(3600)
        finally:
            self.open.discard(request.request_id)

    async def describe(self) -> ModelInfo | Refusal:
        return self.info


def say(text: str, **last: object) -> list[TokenDelta]:
    """One delta a byte; `last` are fields of the last one."""
    deltas = [TokenDelta("r", token_ids=(token_id,)) for token_id in byte_ids(text.encode())]
    fields = {"finish_reason": "stop", **last}
    deltas[-1] = TokenDelta("r", token_ids=deltas[-1].token_ids, **fields)  # type: ignore[arg-type]
    return deltas


def byte_ids(data: bytes) -> list[int]:
    """Ids of tests.tiny_models.byte_tokenizer, by its definition: bytes in the order of their stand-in characters."""
    from tokenizers import pre_tokenizers  # noqa: PLC0415

    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_in = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    order = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [order.index(stand_in[byte]) for byte in data]
