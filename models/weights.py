"""The weights of a decoder, laid out so that a layer needs few products.

Shape suffixes: V vocabulary, D hidden, H query and key heads together, d head_dim, X fused query, key and value width,
O width of all query heads, I intermediate.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from expert_parallel import ExpertWeights
from router import Gate


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Query, key and value rows stand one after another in `qkv`; `qk_norm` holds each head's own copy."""

    qkv_XD: Tensor
    qkv_bias_X: Tensor | None
    output_DO: Tensor
    output_bias_D: Tensor | None
    qk_norm_Hd: Tensor | None


@dataclass(frozen=True, slots=True)
class DenseWeights:
    """A SwiGLU layer; rows 0..I of gate_up are the gate."""

    gate_up_2ID: Tensor
    gate_up_bias_2I: Tensor | None
    down_DI: Tensor
    down_bias_D: Tensor | None


@dataclass(frozen=True, slots=True)
class MoeWeights:
    """A layer's gate and experts."""

    gate: Gate
    experts: ExpertWeights


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One block: x + attention(norm(x)), then x + ffn(norm(x))."""

    attention_norm_D: Tensor
    attention: AttentionWeights
    ffn_norm_D: Tensor
    ffn: DenseWeights | MoeWeights


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """All of a decoder; `lm_head` is `embedding` itself where the checkpoint ties them."""

    embedding_VD: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm_D: Tensor
    lm_head_VD: Tensor
