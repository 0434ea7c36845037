"""Checkpoints small enough to write in a test: random weights, a byte-level tokenizer, a chat template."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedTokenizerFast

EOS, USER, ASSISTANT = "<eos>", "<user>", "<assistant>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<' + ('assistant' if m['role'] == 'assistant' else 'user') + '>' + m['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_tiny_mixtral(path: Path, *, seed: int = 0, max_position_embeddings: int = 512) -> Path:
    """A Mixtral of 3 layers and 4 distinct experts, top-2, whose vocabulary is the 256 bytes and 3 special tokens."""
    torch.manual_seed(seed)
    config = MixtralConfig(
        vocab_size=259,
        hidden_size=48,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=max_position_embeddings,
        initializer_range=0.25,
        bos_token_id=None,
        eos_token_id=256,
        pad_token_id=None,
    )
    MixtralForCausalLM(config).eval().save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte b is one token; the three special ones come after them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS, USER, ASSISTANT])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS)
    fast.chat_template = CHAT_TEMPLATE
    return fast
