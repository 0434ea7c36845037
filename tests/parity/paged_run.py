"""One request run through a Decoder by hand: what a test needs in place of the engine."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import PagedBatch
from kv_cache.tensors import KVTensors
from models import Decoder


class PagedRun:
    """A request in a paged cache whose blocks come in a shuffled order, so that a wrong block shows.

    Other blocks hold NaN, and so do the free slots of its own: reading one shows too.
    """

    def __init__(self, decoder: Decoder, max_tokens: int, block_size: int = 4, seed: int = 0) -> None:
        spec = decoder.spec
        num_blocks = -(-max_tokens // block_size)
        shape = (2 * num_blocks + 1, block_size, spec.num_kv_heads, spec.head_dim)
        caches = [torch.full(shape, torch.nan, dtype=decoder.dtype) for _ in range(2 * spec.num_layers)]
        self._kv = KVTensors(tuple(caches[::2]), tuple(caches[1::2]))
        self._blocks = torch.randperm(shape[0], generator=torch.Generator().manual_seed(seed))[:num_blocks]
        self._block_size = block_size
        self._decoder = decoder
        self._length = 0

    def feed(self, token_ids: list[int]) -> Tensor:
        """Runs the request's next tokens in one step; the logits of each, [T, V]."""
        start, self._length = self._length, self._length + len(token_ids)
        positions = torch.arange(start, self._length)
        batch = PagedBatch(
            query_starts=(0, len(token_ids)),
            context_lens=(self._length,),
            slot_mapping_T=self._blocks[positions // self._block_size] * self._block_size
            + positions % self._block_size,
            block_tables_RN=self._blocks.unsqueeze(0),
            block_size=self._block_size,
        )
        with torch.inference_mode():
            hidden = self._decoder.forward(torch.tensor(token_ids), positions, self._kv, batch)
            return self._decoder.logits(hidden)

    def feed_in_chunks(self, token_ids: list[int], chunk: int) -> Tensor:
        """As `feed`, `chunk` tokens a step."""
        pieces = [self.feed(token_ids[start : start + chunk]) for start in range(0, len(token_ids), chunk)]
        return torch.cat(pieces)


def greedy(decoder: Decoder, prompt: list[int], num_tokens: int, eos: int | None = None) -> list[int]:
    """The likeliest next token, again and again, to `num_tokens` or `eos`."""
    run = PagedRun(decoder, len(prompt) + num_tokens)
    logits, output = run.feed(prompt), list[int]()
    while True:
        output.append(int(logits[-1].argmax()))
        if len(output) == num_tokens or output[-1] == eos:
            return output
        logits = run.feed(output[-1:])


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference, as a part of the largest logit."""
    return float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())
