"""What a checkpoint calls its tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorNames:
    """A family's names. Those under a layer are appended to `layer`; `{layer}` and `{expert}` are numbers.

    Projections are named without `.weight` and `.bias`.
    """

    embedding: str = "model.embed_tokens.weight"
    final_norm: str = "model.norm.weight"
    lm_head: str = "lm_head.weight"
    layer: str = "model.layers.{layer}."
    attention_norm: str = "input_layernorm.weight"
    ffn_norm: str = "post_attention_layernorm.weight"
    q: str = "self_attn.q_proj"
    k: str = "self_attn.k_proj"
    v: str = "self_attn.v_proj"
    o: str = "self_attn.o_proj"
    q_norm: str = "self_attn.q_norm.weight"
    k_norm: str = "self_attn.k_norm.weight"
    dense_gate: str = "mlp.gate_proj"
    dense_up: str = "mlp.up_proj"
    dense_down: str = "mlp.down_proj"
    router: str = "mlp.gate.weight"
    expert_gate: str = "mlp.experts.{expert}.gate_proj.weight"
    expert_up: str = "mlp.experts.{expert}.up_proj.weight"
    expert_down: str = "mlp.experts.{expert}.down_proj.weight"


HF_NAMES = TensorNames()
MIXTRAL_NAMES = TensorNames(
    router="block_sparse_moe.gate.weight",
    expert_gate="block_sparse_moe.experts.{expert}.w1.weight",
    expert_up="block_sparse_moe.experts.{expert}.w3.weight",
    expert_down="block_sparse_moe.experts.{expert}.w2.weight",
)
