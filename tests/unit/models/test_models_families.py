"""config.json -> ModelSpec, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, PretrainedConfig, Qwen3MoeConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from models import load_spec
from models.rope import inverse_frequencies
from models.spec import AttentionSpec, DenseSpec, LinearScaling, Llama3Scaling, ModelSpec, MoeSpec, RopeSpec
from router import GateSpec

BASE: dict[str, object] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
}
LLAMA = {**BASE, "architectures": ["LlamaForCausalLM"]}
MIXTRAL = {**BASE, "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN3 = {**BASE, "architectures": ["Qwen3ForCausalLM"]}
QWEN3_MOE = {
    **BASE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}


def spec_of(tmp_path: Path, config: dict[str, object]) -> ModelSpec:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return load_spec(tmp_path)


def test_llama_reads_its_fields_and_defaults(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, {**LLAMA, "attention_bias": True, "mlp_bias": True, "torch_dtype": "bfloat16"})
    assert spec.attention == AttentionSpec(4, 2, 8, qkv_bias=True, output_bias=True)
    assert spec.ffns == (DenseSpec(48, bias=True),) * 4
    assert spec.torch_dtype == torch.bfloat16
    assert spec.rope == RopeSpec(10000.0)
    assert not spec.tie_word_embeddings


def test_mixtral_always_renormalizes_and_has_its_own_theta(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, {**MIXTRAL, "sliding_window": None})
    assert spec.ffns == (MoeSpec(48, GateSpec(8, 2, renormalize=True)),) * 4
    assert spec.rope.theta == 1e6


def test_qwen3_moe_layers_are_dense_where_the_config_says(tmp_path: Path) -> None:
    moe, dense = MoeSpec(24, GateSpec(8, 2, renormalize=False)), DenseSpec(48)
    assert spec_of(tmp_path, {**QWEN3_MOE, "mlp_only_layers": [1]}).ffns == (moe, dense, moe, moe)
    assert spec_of(tmp_path, {**QWEN3_MOE, "decoder_sparse_step": 2}).ffns == (dense, moe, dense, moe)
    normalized = spec_of(tmp_path, {**QWEN3_MOE, "norm_topk_prob": True}).ffns[0]
    assert normalized == MoeSpec(24, GateSpec(8, 2, renormalize=True))


def test_qwen3_head_dim_is_not_derived(tmp_path: Path) -> None:
    assert spec_of(tmp_path, QWEN3).head_dim == 128
    assert spec_of(tmp_path, {**QWEN3, "head_dim": 16}).head_dim == 16
    assert spec_of(tmp_path, QWEN3_MOE).head_dim == 8


@pytest.mark.parametrize("config", [LlamaConfig(**BASE), Qwen3MoeConfig(**BASE, num_experts=4, num_experts_per_tok=2)])
def test_what_transformers_saves_can_be_read(config: PretrainedConfig, tmp_path: Path) -> None:
    config.architectures = [type(config).__name__.replace("Config", "ForCausalLM")]
    config.save_pretrained(tmp_path)
    assert load_spec(tmp_path).num_kv_heads == 2


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def test_old_and_new_forms_of_rope_are_the_same(tmp_path: Path) -> None:
    expected = RopeSpec(5e5, Llama3Scaling(8.0, 1.0, 4.0, 64))
    old = {**LLAMA, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}
    new = {**LLAMA, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}
    assert spec_of(tmp_path, old).rope == expected
    assert spec_of(tmp_path, new).rope == expected
    oldest = {**LLAMA, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert spec_of(tmp_path, oldest).rope == RopeSpec(5e5, LinearScaling(2.0))


@pytest.mark.parametrize("rope", [{"rope_type": "llama3", **LLAMA3}, {"rope_type": "linear", "factor": 3.0}])
def test_frequencies_are_those_of_transformers(rope: dict[str, object], tmp_path: Path) -> None:
    config = LlamaConfig(**BASE, head_dim=64, rope_parameters={**rope, "rope_theta": 1e4})
    expected, _ = ROPE_INIT_FUNCTIONS[str(rope["rope_type"])](config)
    spec = spec_of(tmp_path, {**LLAMA, "head_dim": 64, "rope_scaling": rope, "rope_theta": 1e4})
    torch.testing.assert_close(inverse_frequencies(spec.rope, 64), expected, rtol=1e-6, atol=0)


REFUSED = [
    (LLAMA | {"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported.*MixtralForCausalLM"),
    (LLAMA | {"architectures": None}, "architectures must name one"),
    (LLAMA | {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    (LLAMA | {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    (LLAMA | {"hidden_size": None}, "hidden_size is missing"),
    (LLAMA | {"hidden_size": "32"}, "hidden_size must be an integer, found '32'"),
    (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
    (LLAMA | {"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide"),
    (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rope_scaling: rope_type 'yarn'"),
    (LLAMA | {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor is missing"),
    (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    (LLAMA | {"dtype": "int8"}, "dtype 'int8'"),
    (MIXTRAL | {"sliding_window": 128}, "sliding_window is in use"),
    (MIXTRAL | {"num_experts_per_tok": 9}, "num_experts_per_tok 9 is more than num_local_experts 8"),
    (QWEN3 | {"use_sliding_window": True, "sliding_window": 128}, "sliding_window is in use"),
]


@pytest.mark.parametrize(("config", "message"), REFUSED)
def test_what_is_not_served_is_refused_by_name(config: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        spec_of(tmp_path, config)


@pytest.mark.parametrize(
    "config",
    [
        MIXTRAL | {"sliding_window": 4096},  # wider than the model is long
        QWEN3 | {"use_sliding_window": False, "sliding_window": 128},
        LLAMA | {"sliding_window": 128},  # no meaning in this family
    ],
)
def test_a_window_that_is_not_used_is_no_obstacle(config: dict[str, object], tmp_path: Path) -> None:
    assert spec_of(tmp_path, config).num_layers == 4


def test_a_config_that_is_absent_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json in"):
        load_spec(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not valid JSON"):
        load_spec(tmp_path)
