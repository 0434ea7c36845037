"""SmolLM2's GGUF file -> the config and tensors of an exact MixtralForCausalLM.

Each layer's SwiGLU of 1536 neurons is cut into 8 experts of 192. The router's weights are zero, so each expert's weight
is 1/8 after the softmax over all 8, and `down_proj` times 8 makes the sum the dense layer's own.

Shape suffixes: I intermediate size of the dense layer, D hidden, N rows, M columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import torch
from torch import Tensor
from tqdm import tqdm

_NUM_EXPERTS = 8
_WHOLE_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_EXPERT_NAMES = {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2"}


def read_demo(path: Path) -> tuple[dict[str, object], dict[str, Tensor]]:
    """The fields of config.json, and every tensor in float32 under its Hugging Face name."""
    reader = gguf.GGUFReader(path)
    config = _config(reader)
    tensors: dict[str, Tensor] = {}
    for stored in tqdm(reader.tensors, desc="Converting tensors", unit="tensor"):
        weight = torch.tensor(gguf.dequantize(stored.data, stored.tensor_type))
        tensors.update(_convert(stored.name, weight, reader))
    for layer in range(_field(reader, "llama.block_count")):
        hidden = _field(reader, "llama.embedding_length")
        tensors[f"model.layers.{layer}.block_sparse_moe.gate.weight"] = torch.zeros(_NUM_EXPERTS, hidden)
    return config, tensors


def write_tokenizer(path: Path, directory: Path) -> None:
    """Writes the GGUF file's tokenizer and chat template in Hugging Face's form."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - takes seconds to import

    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(directory)


def _config(reader: gguf.GGUFReader) -> dict[str, object]:
    return {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "vocab_size": _field(reader, "llama.vocab_size"),
        "hidden_size": _field(reader, "llama.embedding_length"),
        "intermediate_size": _field(reader, "llama.feed_forward_length") // _NUM_EXPERTS,
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_attention_heads": _field(reader, "llama.attention.head_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "head_dim": _field(reader, "llama.rope.dimension_count"),
        "hidden_act": "silu",
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        "num_local_experts": _NUM_EXPERTS,
        "num_experts_per_tok": _NUM_EXPERTS,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
        "dtype": "float32",
    }


def _convert(name: str, weight: Tensor, reader: gguf.GGUFReader) -> Iterator[tuple[str, Tensor]]:
    if name in _WHOLE_NAMES:
        yield _WHOLE_NAMES[name], weight
        return
    _, layer, part, _ = name.split(".")
    prefix = f"model.layers.{layer}."
    if part in _EXPERT_NAMES:
        for expert, piece in enumerate(_cut(part, weight)):
            yield f"{prefix}block_sparse_moe.experts.{expert}.{_EXPERT_NAMES[part]}.weight", piece
        return
    if part == "attn_q":
        weight = _to_half_split(weight, _field(reader, "llama.attention.head_count"))
    if part == "attn_k":
        weight = _to_half_split(weight, _field(reader, "llama.attention.head_count_kv"))
    yield f"{prefix}{_LAYER_NAMES[part]}.weight", weight


def _cut(part: str, weight: Tensor) -> list[Tensor]:
    """gate and up [I, D] by rows; down [D, I] by columns, scaled to undo the gate's 1/8."""
    pieces = (weight * _NUM_EXPERTS).chunk(_NUM_EXPERTS, dim=1) if part == "ffn_down" else weight.chunk(_NUM_EXPERTS)
    return [piece.clone(memory_format=torch.contiguous_format) for piece in pieces]  # safetensors takes no views


def _to_half_split(weight_NM: Tensor, num_heads: int) -> Tensor:
    """llama.cpp stores rotated rows as pairs (0, 1), (2, 3) of a head; Hugging Face as (0, h), (1, h + 1)."""
    num_rows, num_columns = weight_NM.shape
    pairs = weight_NM.view(num_heads, num_rows // num_heads // 2, 2, num_columns)
    return pairs.transpose(1, 2).reshape(num_rows, num_columns)


def _field(reader: gguf.GGUFReader, name: str) -> int:
    return int(reader.fields[name].contents())
