"""Checkpoint files -> a Decoder, each tensor copied once, straight to where it will be used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from expert_parallel import ExpertWeights
from models.checkpoint import Checkpoint
from models.decoder import Decoder
from models.families import read_checkpoint_config
from models.spec import DenseSpec, ModelSpec, MoeSpec
from models.tensor_names import TensorNames
from models.weights import AttentionWeights, DenseWeights, LayerWeights, ModelWeights, MoeWeights
from router import Gate

logger = logging.getLogger(__name__)

SERVED_DTYPES = (torch.float32, torch.bfloat16)


def load_model(path: Path, *, device: torch.device, dtype: torch.dtype | None, show_progress: bool) -> Decoder:
    """The decoder of the checkpoint in directory `path`; `dtype` None keeps the checkpoint's own.

    Raises:
        ValueError: the config asks for what is not served, a dtype other than float32 and bfloat16, or a tensor is
            missing, damaged or of another shape; names it.
    """
    spec, names = read_checkpoint_config(path)
    dtype = dtype or spec.torch_dtype
    if dtype not in SERVED_DTYPES:
        raise ValueError(f"{path}: dtype {dtype} is not served; choose float32 or bfloat16")
    checkpoint = Checkpoint(path)
    with tqdm(total=spec.num_layers, desc="Loading layers", unit="layer", disable=not show_progress) as progress:
        weights = _Loader(checkpoint, spec, names, device, dtype).load(progress.update)
    if extra := checkpoint.unread:
        logger.info("%s: ignored %d tensors the model does not use, such as %s", path, len(extra), extra[0])
    return Decoder(spec, weights)


class _Loader:
    """Assembles one model's weights. Row counts below are those config.json implies."""

    def __init__(
        self, checkpoint: Checkpoint, spec: ModelSpec, names: TensorNames, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._checkpoint = checkpoint
        self._spec = spec
        self._names = names
        self._device = device
        self._dtype = dtype

    def load(self, on_layer: Callable[[], object]) -> ModelWeights:
        spec, names = self._spec, self._names
        embedding_VD = self._tensor(names.embedding, spec.vocab_size, spec.hidden_size)
        final_norm_D = self._tensor(names.final_norm, spec.hidden_size)
        lm_head_VD = embedding_VD
        if not spec.tie_word_embeddings:
            lm_head_VD = self._tensor(names.lm_head, spec.vocab_size, spec.hidden_size)
        layers = []
        for layer in range(spec.num_layers):
            layers.append(self._layer(layer))
            on_layer()
        return ModelWeights(embedding_VD, tuple(layers), final_norm_D, lm_head_VD)

    def _layer(self, layer: int) -> LayerWeights:
        prefix, ffn = self._names.layer.format(layer=layer), self._spec.ffns[layer]
        return LayerWeights(
            attention_norm_D=self._tensor(prefix + self._names.attention_norm, self._spec.hidden_size),
            attention=self._attention(prefix),
            ffn_norm_D=self._tensor(prefix + self._names.ffn_norm, self._spec.hidden_size),
            ffn=self._moe(prefix, ffn) if isinstance(ffn, MoeSpec) else self._dense(prefix, ffn),
        )

    def _attention(self, prefix: str) -> AttentionWeights:
        spec, names, hidden = self._spec.attention, self._names, self._spec.hidden_size
        q_rows, kv_rows = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        rows, qkv = [q_rows, kv_rows, kv_rows], [prefix + name for name in (names.q, names.k, names.v)]
        output = prefix + names.o
        return AttentionWeights(
            qkv_XD=self._fused([f"{name}.weight" for name in qkv], rows, hidden),
            qkv_bias_X=self._fused([f"{name}.bias" for name in qkv], rows) if spec.qkv_bias else None,
            output_DO=self._tensor(f"{output}.weight", hidden, q_rows),
            output_bias_D=self._tensor(f"{output}.bias", hidden) if spec.output_bias else None,
            qk_norm_Hd=self._qk_norm(prefix) if spec.qk_norm else None,
        )

    def _qk_norm(self, prefix: str) -> Tensor:
        spec, names = self._spec.attention, self._names
        q_norm_d = self._tensor(prefix + names.q_norm, spec.head_dim)
        k_norm_d = self._tensor(prefix + names.k_norm, spec.head_dim)
        return torch.cat((q_norm_d.expand(spec.num_heads, -1), k_norm_d.expand(spec.num_kv_heads, -1)))

    def _dense(self, prefix: str, spec: DenseSpec) -> DenseWeights:
        names, hidden = self._names, self._spec.hidden_size
        gate_up, down = [prefix + names.dense_gate, prefix + names.dense_up], prefix + names.dense_down
        rows = [spec.intermediate_size] * 2
        return DenseWeights(
            gate_up_2ID=self._fused([f"{name}.weight" for name in gate_up], rows, hidden),
            gate_up_bias_2I=self._fused([f"{name}.bias" for name in gate_up], rows) if spec.bias else None,
            down_DI=self._tensor(f"{down}.weight", hidden, spec.intermediate_size),
            down_bias_D=self._tensor(f"{down}.bias", hidden) if spec.bias else None,
        )

    def _moe(self, prefix: str, spec: MoeSpec) -> MoeWeights:
        names, hidden, intermediate = self._names, self._spec.hidden_size, spec.intermediate_size
        gate_up_E2ID = self._empty(spec.gate.num_experts, 2 * intermediate, hidden)
        down_EDI = self._empty(spec.gate.num_experts, hidden, intermediate)
        for expert in range(spec.gate.num_experts):
            gate_ID, up_ID = gate_up_E2ID[expert, :intermediate], gate_up_E2ID[expert, intermediate:]
            self._checkpoint.read_into(prefix + names.expert_gate.format(expert=expert), gate_ID)
            self._checkpoint.read_into(prefix + names.expert_up.format(expert=expert), up_ID)
            self._checkpoint.read_into(prefix + names.expert_down.format(expert=expert), down_EDI[expert])
        router_ED = self._tensor(prefix + names.router, spec.gate.num_experts, hidden)
        return MoeWeights(Gate(router_ED, spec.gate), ExpertWeights(gate_up_E2ID, down_EDI))

    def _fused(self, names: Sequence[str], rows: Sequence[int], *row_shape: int) -> Tensor:
        """The named tensors one under another, tensor i with rows[i] rows."""
        fused = self._empty(sum(rows), *row_shape)
        for name, part in zip(names, torch.split(fused, list(rows)), strict=True):
            self._checkpoint.read_into(name, part)
        return fused

    def _tensor(self, name: str, *shape: int) -> Tensor:
        tensor = self._empty(*shape)
        self._checkpoint.read_into(name, tensor)
        return tensor

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)
