"""Tiny random transformers models of each family, saved as checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}


def tiny_model(family: str) -> PreTrainedModel:
    """A model with weights wide enough (0.2) for experts, heads and positions to matter; norms are random too."""
    torch.manual_seed(7)
    model = _BUILDERS[family]().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 1.5)
            if name.endswith(".bias"):
                parameter.normal_(std=0.2)
    return model


def save(model: PreTrainedModel, path: Path, *, max_shard_size: str = "1GB") -> Path:
    model.save_pretrained(path, max_shard_size=max_shard_size)
    return path


def _shape() -> dict[str, object]:
    return {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _mixtral() -> PreTrainedModel:
    return MixtralForCausalLM(MixtralConfig(**_shape(), num_local_experts=6, num_experts_per_tok=2))


def _qwen3_moe(**changes: object) -> PreTrainedModel:
    moe = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "head_dim": 16}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**_shape(), **moe, **changes))


def _llama(**changes: object) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**_shape(), **changes))


def _qwen3(**changes: object) -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**_shape(), head_dim=16, **changes))


_BUILDERS: dict[str, Callable[[], PreTrainedModel]] = {
    "mixtral": _mixtral,
    "qwen3_moe": lambda: _qwen3_moe(mlp_only_layers=[1], norm_topk_prob=True),
    "qwen3_moe_unnormalized": lambda: _qwen3_moe(decoder_sparse_step=2, norm_topk_prob=False),
    "llama": lambda: _llama(rope_parameters=LLAMA3_ROPE),
    "llama_biased_tied": lambda: _llama(
        rope_parameters=LINEAR_ROPE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "qwen3": lambda: _qwen3(attention_bias=True),
}
FAMILIES = tuple(_BUILDERS)
