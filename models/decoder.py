"""The one decoder that runs every family.

Shape suffixes: T tokens of the step, N rows asked for, V vocabulary, D hidden, H heads, d head_dim, h half of it,
X fused query, key and value width.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from expert_parallel import run_moe
from kernels import PagedBatch, apply_rope, linear, paged_attention, rms_norm, silu_mul, store_kv
from kv_cache.tensors import KVTensors
from models.rope import RopeTables
from models.spec import ModelSpec
from models.weights import AttentionWeights, DenseWeights, ModelWeights, MoeWeights


class Decoder:
    """Runs tokens through a checkpoint's layers, keeping their keys and values in a paged cache."""

    def __init__(self, spec: ModelSpec, weights: ModelWeights) -> None:
        assert len(weights.layers) == spec.num_layers
        self.spec = spec
        self.dtype = weights.embedding_VD.dtype
        self.device = weights.embedding_VD.device
        self._weights = weights
        self._rope = RopeTables(spec.rope, spec.head_dim, spec.max_position_embeddings, self.device)

    def forward(self, token_ids_T: Tensor, positions_T: Tensor, kv: KVTensors, batch: PagedBatch) -> Tensor:
        """Hidden states after the final norm, [T, D], for tokens standing at `positions_T` of their requests.

        Writes their keys and values into `kv` where `batch` says. Call under torch.inference_mode.
        """
        eps = self.spec.rms_norm_eps
        rope = self._rope.at(positions_T)
        x_TD = functional.embedding(token_ids_T, self._weights.embedding_VD)
        for layer, keys, values in zip(self._weights.layers, kv.keys, kv.values, strict=True):
            normed_TD = rms_norm(x_TD, layer.attention_norm_D, eps)
            x_TD = x_TD + self._attention(normed_TD, layer.attention, rope, (keys, values), batch)
            normed_TD = rms_norm(x_TD, layer.ffn_norm_D, eps)
            x_TD = x_TD + _run_ffn(normed_TD, layer.ffn)
        return rms_norm(x_TD, self._weights.final_norm_D, eps)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Next-token logits of each row, [N, V] in float32."""
        return linear(hidden_ND, self._weights.lm_head_VD).float()

    def _attention(
        self,
        x_TD: Tensor,
        weights: AttentionWeights,
        rope: tuple[Tensor, Tensor],
        cache: tuple[Tensor, Tensor],
        batch: PagedBatch,
    ) -> Tensor:
        spec = self.spec.attention
        num_tokens, num_rotated = x_TD.shape[0], spec.num_heads + spec.num_kv_heads
        qkv_TX = linear(x_TD, weights.qkv_XD, weights.qkv_bias_X)
        qkv_THd = qkv_TX.view(num_tokens, num_rotated + spec.num_kv_heads, spec.head_dim)
        qk_THd, v_THd = qkv_THd[:, :num_rotated], qkv_THd[:, num_rotated:]
        if weights.qk_norm_Hd is not None:
            qk_THd = rms_norm(qk_THd, weights.qk_norm_Hd, self.spec.rms_norm_eps)
        qk_THd = apply_rope(qk_THd, *rope)
        store_kv(qk_THd[:, spec.num_heads :], v_THd, *cache, batch.slot_mapping_T)
        out_THd = paged_attention(qk_THd[:, : spec.num_heads], *cache, batch, spec.scale)
        return linear(out_THd.flatten(1), weights.output_DO, weights.output_bias_D)


def _run_ffn(x_TD: Tensor, ffn: DenseWeights | MoeWeights) -> Tensor:
    if isinstance(ffn, MoeWeights):
        return run_moe(x_TD, *ffn.gate(x_TD), ffn.experts)
    active_TI = silu_mul(linear(x_TD, ffn.gate_up_2ID, ffn.gate_up_bias_2I))
    return linear(active_TI, ffn.down_DI, ffn.down_bias_D)
