"""What an engine is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

import torch


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine, that is of one rank.

    model: a checkpoint directory in Hugging Face's layout, or "demo".
    dtype: of weights and cache; "auto" takes the checkpoint's own.
    kv_cache_gib: memory for keys and values, in GiB; all of it is taken at start.
    max_model_len: longest prompt + output; None takes what the model was made for.
    max_num_seqs: most requests in one step. max_num_batched_tokens: most tokens in one step.
    max_waiting: requests that may queue beyond those that run before new ones are refused.
    num_threads: torch's threads on a CPU; None leaves torch's choice.
    """

    model: str = "demo"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    block_size: int = 16
    kv_cache_gib: float = 1.0
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 1024
    max_waiting: int = 256
    enable_prefix_caching: bool = True
    num_threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.max_waiting < 0:
            raise ValueError(f"max_waiting must not be negative, got {self.max_waiting}")
        if not self.kv_cache_gib > 0:
            raise ValueError(f"kv_cache_gib must be positive, got {self.kv_cache_gib}")

    @property
    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is 'cuda' but torch sees no GPU")
        return torch.device(self.device)

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """None where the checkpoint decides."""
        return {"auto": None, "float32": torch.float32, "bfloat16": torch.bfloat16}[self.dtype]


class EngineOptions(TypedDict, total=False):
    """The fields of EngineConfig besides `model`, as keywords of `LLM`."""

    dtype: Literal["auto", "float32", "bfloat16"]
    device: Literal["auto", "cpu", "cuda"]
    block_size: int
    kv_cache_gib: float
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    max_waiting: int
    enable_prefix_caching: bool
    num_threads: int | None
