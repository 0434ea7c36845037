"""Every family against transformers' own modelling, on tiny random models in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from models import Decoder, load_model
from tests.parity.paged_run import PagedRun, greedy, relative_difference
from tests.parity.tiny_models import FAMILIES, save, tiny_model

TOLERANCE = 1e-4
PROMPT = torch.randint(0, 96, (40,), generator=torch.Generator().manual_seed(3)).tolist()


def load(path: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    return load_model(path, device=torch.device("cpu"), dtype=dtype, show_progress=False)


def oracle_logits(model: PreTrainedModel, token_ids: list[int]) -> Tensor:
    with torch.inference_mode():
        logits = model(torch.tensor([token_ids])).logits[0]
    assert isinstance(logits, Tensor)
    return logits


def oracle_greedy(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> list[int]:
    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=num_tokens, do_sample=False, pad_token_id=0
        )
    new_tokens: list[int] = output[0, len(prompt) :].tolist()
    return new_tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    decoder = load(save(model, tmp_path))
    expected = oracle_logits(model, PROMPT)
    assert relative_difference(PagedRun(decoder, len(PROMPT)).feed(PROMPT), expected) < TOLERANCE
    for chunk in (1, 3, 7, 16, 39):
        logits = PagedRun(decoder, len(PROMPT), seed=chunk).feed_in_chunks(PROMPT, chunk)
        assert relative_difference(logits, expected) < TOLERANCE, f"in chunks of {chunk}"
    assert greedy(decoder, PROMPT, 64) == oracle_greedy(model, PROMPT, 64)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_changed_weight_is_seen_by_the_comparison(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    decoder = load(save(model, tmp_path))
    with torch.no_grad():
        model.get_parameter("model.layers.1.self_attn.o_proj.weight")[5, 7] += 1.0
    logits = PagedRun(decoder, len(PROMPT)).feed(PROMPT)
    assert relative_difference(logits, oracle_logits(model, PROMPT)) > 10 * TOLERANCE


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_a_sharded_checkpoint_is_the_same_model(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    whole = load(save(model, tmp_path / "whole"))
    sharded = load(save(model, tmp_path / "sharded", max_shard_size="20KB"))
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 3
    assert torch.equal(PagedRun(sharded, len(PROMPT)).feed(PROMPT), PagedRun(whole, len(PROMPT)).feed(PROMPT))


@pytest.mark.parametrize("family", ["mixtral", "qwen3"])
def test_bfloat16_stays_near_float32(family: str, tmp_path: Path) -> None:
    model = tiny_model(family)
    decoder = load(save(model, tmp_path), torch.bfloat16)
    assert decoder.dtype == torch.bfloat16
    logits = PagedRun(decoder, len(PROMPT)).feed(PROMPT)
    assert logits.dtype == torch.float32
    difference = (logits - oracle_logits(model, PROMPT)).abs().mean() / oracle_logits(model, PROMPT).abs().mean()
    assert 1e-4 < difference < 0.1
