"""Where the tokens of one step stand in the paged KV cache.

Shape suffixes: T tokens of the step, R requests of the step, N blocks of the longest table.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """One step's tokens, request after request.

    Request r owns tokens query_starts[r] to query_starts[r+1]; after the step its cache holds context_lens[r] tokens,
    its own new ones last. Token t is written at slot_mapping_T[t] = block * block_size + offset. block_tables_RN is
    padded with block 0, which is never read past a request's context.
    """

    query_starts: tuple[int, ...]
    context_lens: tuple[int, ...]
    slot_mapping_T: Tensor
    block_tables_RN: Tensor
    block_size: int

    def __post_init__(self) -> None:
        assert len(self.query_starts) == len(self.context_lens) + 1
        assert self.slot_mapping_T.dtype == torch.int64
        assert self.block_tables_RN.dtype == torch.int64
