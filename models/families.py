"""config.json -> ModelSpec and tensor names, for each family served.

Fields and defaults are those of the family's configuration class in transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from models.config_json import ConfigJson, read_json_object
from models.rope_config import read_rope
from models.spec import AttentionSpec, DenseSpec, FfnSpec, ModelSpec, MoeSpec
from models.tensor_names import HF_NAMES, MIXTRAL_NAMES, TensorNames
from router import GateSpec

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Family:
    """How one architecture's config.json is read. `windowed` says whether sliding-window attention is switched on."""

    names: TensorNames
    read_attention: Callable[[ConfigJson], AttentionSpec]
    read_ffn: Callable[[ConfigJson, int], FfnSpec]
    windowed: Callable[[ConfigJson], bool]
    default_theta: float = 1e4


def load_spec(path: Path) -> ModelSpec:
    """The ModelSpec of the checkpoint in directory `path`.

    Raises:
        ValueError: there is no readable config.json, or it asks for what is not served; names the field.
    """
    return read_checkpoint_config(path)[0]


def read_checkpoint_config(path: Path) -> tuple[ModelSpec, TensorNames]:
    """The ModelSpec and the tensor names of the checkpoint in directory `path`; raises as `load_spec` does."""
    config_path = path / "config.json"
    config = ConfigJson(read_json_object(config_path), str(config_path))
    architecture, family = _family(config)
    _refuse_unsupported(config, family)
    num_layers = config.positive("num_hidden_layers")
    spec = ModelSpec(
        architecture=architecture,
        vocab_size=config.positive("vocab_size"),
        hidden_size=config.positive("hidden_size"),
        max_position_embeddings=config.positive("max_position_embeddings"),
        rms_norm_eps=config.number("rms_norm_eps"),
        tie_word_embeddings=config.flag("tie_word_embeddings", False),
        torch_dtype=_read_dtype(config),
        attention=family.read_attention(config),
        rope=read_rope(config, family.default_theta),
        ffns=tuple(family.read_ffn(config, layer) for layer in range(num_layers)),
    )
    return spec, family.names


def _family(config: ConfigJson) -> tuple[str, Family]:
    architectures = config.array("architectures")
    if len(architectures) != 1:
        raise config.error("architectures", f"must name one architecture, found {architectures}")
    architecture = str(architectures[0])
    if architecture not in FAMILIES:
        raise config.error("architectures", f"{architecture} is not supported; these are: {', '.join(FAMILIES)}")
    return architecture, FAMILIES[architecture]


def _refuse_unsupported(config: ConfigJson, family: Family) -> None:
    if config.has("quantization_config"):
        raise config.error("quantization_config", "is set, and quantized checkpoints are not supported")
    if config.text("hidden_act", "silu") != "silu":
        raise config.error("hidden_act", f"{config.text('hidden_act')!r} is not supported (silu is)")
    if family.windowed(config) and config.integer("sliding_window") < config.positive("max_position_embeddings"):
        raise config.error("sliding_window", "is in use, and sliding-window attention is not supported")


def _read_dtype(config: ConfigJson) -> torch.dtype:
    field = "dtype" if config.has("dtype") else "torch_dtype"
    name = config.text(field, "float32")
    if name not in _DTYPES:
        raise config.error(field, f"{name!r} is not supported ({', '.join(_DTYPES)} are)")
    return _DTYPES[name]


def _attention(
    config: ConfigJson, *, default_head_dim: int | None = None, bias: bool = False, qk_norm: bool = False
) -> AttentionSpec:
    num_heads = config.positive("num_attention_heads")
    num_kv_heads = config.positive("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise config.error("num_key_value_heads", f"{num_kv_heads} does not divide num_attention_heads {num_heads}")
    head_dim = config.positive("head_dim", default_head_dim or config.positive("hidden_size") // num_heads)
    if head_dim % 2:
        raise config.error("head_dim", f"must be even to be rotated, found {head_dim}")
    return AttentionSpec(num_heads, num_kv_heads, head_dim, qkv_bias=bias, output_bias=bias, qk_norm=qk_norm)


def _llama_attention(config: ConfigJson) -> AttentionSpec:
    return _attention(config, bias=config.flag("attention_bias", False))


def _qwen3_attention(config: ConfigJson) -> AttentionSpec:
    # The class of the dense family has a default of its own.
    return _attention(config, default_head_dim=128, bias=config.flag("attention_bias", False), qk_norm=True)


def _qwen3_moe_attention(config: ConfigJson) -> AttentionSpec:
    return _attention(config, bias=config.flag("attention_bias", False), qk_norm=True)


def _dense_ffn(config: ConfigJson, layer: int) -> FfnSpec:
    return DenseSpec(config.positive("intermediate_size"))


def _llama_ffn(config: ConfigJson, layer: int) -> FfnSpec:
    return DenseSpec(config.positive("intermediate_size"), bias=config.flag("mlp_bias", False))


def _mixtral_ffn(config: ConfigJson, layer: int) -> FfnSpec:
    return MoeSpec(config.positive("intermediate_size"), _gate(config, renormalize=True))


def _qwen3_moe_ffn(config: ConfigJson, layer: int) -> FfnSpec:
    sparse_step = config.positive("decoder_sparse_step", 1)
    if layer in config.array("mlp_only_layers") or (layer + 1) % sparse_step:
        return _dense_ffn(config, layer)
    gate = _gate(config, renormalize=config.flag("norm_topk_prob", False))
    return MoeSpec(config.positive("moe_intermediate_size"), gate)


def _gate(config: ConfigJson, *, renormalize: bool) -> GateSpec:
    # transformers treats the two names as one and writes either.
    count_field = "num_local_experts" if config.has("num_local_experts") else "num_experts"
    num_experts, top_k = config.positive(count_field), config.positive("num_experts_per_tok")
    if top_k > num_experts:
        raise config.error("num_experts_per_tok", f"{top_k} is more than {count_field} {num_experts}")
    return GateSpec(num_experts, top_k, renormalize)


def _windowed_by_size(config: ConfigJson) -> bool:
    return config.has("sliding_window")


def _windowed_by_switch(config: ConfigJson) -> bool:
    return config.flag("use_sliding_window", False) and config.has("sliding_window")


def _never_windowed(config: ConfigJson) -> bool:
    return False


FAMILIES = {
    "MixtralForCausalLM": Family(MIXTRAL_NAMES, _attention, _mixtral_ffn, _windowed_by_size, default_theta=1e6),
    "Qwen3MoeForCausalLM": Family(HF_NAMES, _qwen3_moe_attention, _qwen3_moe_ffn, _windowed_by_switch),
    "LlamaForCausalLM": Family(HF_NAMES, _llama_attention, _llama_ffn, _never_windowed),
    "Qwen3ForCausalLM": Family(HF_NAMES, _qwen3_attention, _dense_ffn, _windowed_by_switch),
}
