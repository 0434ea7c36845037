"""Checkpoints that cannot be loaded, and what the error says."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models import Decoder, load_model
from tests.parity.tiny_models import save, tiny_model

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
EXPERT = "model.layers.1.block_sparse_moe.experts.2.w3.weight"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save(tiny_model("mixtral"), tmp_path)


def load(path: Path, dtype: torch.dtype | None = None) -> Decoder:
    return load_model(path, device=torch.device("cpu"), dtype=dtype, show_progress=False)


def edit_tensors(path: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(path / WEIGHTS)
    edit(tensors)
    save_file(tensors, path / WEIGHTS)


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_missing_tensor_is_named(checkpoint: Path) -> None:
    edit_tensors(checkpoint, lambda tensors: tensors.pop(EXPERT))
    with pytest.raises(ValueError, match=rf"{checkpoint} has no tensor '{EXPERT}'"):
        load(checkpoint)


def test_a_wrong_shape_is_named_with_what_was_expected(checkpoint: Path) -> None:
    edit_tensors(checkpoint, lambda tensors: tensors.update({EXPERT: torch.zeros(48, 31)}))
    with pytest.raises(ValueError, match=rf"'{EXPERT}' in .*{WEIGHTS} has shape \[48, 31\].*\[48, 32\]"):
        load(checkpoint)


def test_a_config_that_disagrees_with_the_tensors_is_a_wrong_shape(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", num_key_value_heads=4)
    with pytest.raises(ValueError, match=r"k_proj.weight' in .* has shape \[16, 32\].*\[32, 32\]"):
        load(checkpoint)


def test_a_truncated_file_is_named(checkpoint: Path) -> None:
    whole = (checkpoint / WEIGHTS).read_bytes()
    (checkpoint / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{WEIGHTS} is not a whole safetensors file"):
        load(checkpoint)


def test_an_empty_file_is_named(checkpoint: Path) -> None:
    (checkpoint / WEIGHTS).write_bytes(b"")
    with pytest.raises(ValueError, match=rf"{WEIGHTS} is not a whole safetensors file"):
        load(checkpoint)


def test_a_directory_without_safetensors_is_named(checkpoint: Path) -> None:
    (checkpoint / WEIGHTS).unlink()
    with pytest.raises(ValueError, match=rf"no safetensors in {checkpoint}"):
        load(checkpoint)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    save(tiny_model("mixtral"), tmp_path, max_shard_size="20KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ValueError, match=rf"{INDEX} names {shard.name}, which is not in"):
        load(tmp_path)


def test_an_index_that_points_to_the_wrong_shard_is_named(tmp_path: Path) -> None:
    save(tiny_model("mixtral"), tmp_path, max_shard_size="20KB")
    weight_map = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    other = next(file for file in weight_map.values() if file != weight_map[EXPERT])
    edit_json(tmp_path / INDEX, weight_map={**weight_map, EXPERT: other})
    with pytest.raises(ValueError, match=rf"cannot read '{EXPERT}' from .*{other}"):
        load(tmp_path)


def test_an_index_without_a_map_is_named(tmp_path: Path) -> None:
    save(tiny_model("mixtral"), tmp_path, max_shard_size="20KB")
    edit_json(tmp_path / INDEX, weight_map={"model.norm.weight": 3})
    with pytest.raises(ValueError, match=rf"{INDEX} has no weight_map"):
        load(tmp_path)


def test_tensors_of_no_use_are_ignored_in_one_line(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4), "vision.weight": torch.zeros(2)}
    edit_tensors(checkpoint, lambda tensors: tensors.update(extra))
    with caplog.at_level(logging.INFO, logger="models.loader"):
        load(checkpoint)
    assert [record.getMessage() for record in caplog.records] == [
        f"{checkpoint}: ignored 2 tensors the model does not use, such as {next(iter(extra))}"
    ]


def test_dtype_is_the_checkpoints_own_unless_asked(tmp_path: Path) -> None:
    save(tiny_model("llama").to(torch.bfloat16), tmp_path)
    assert load(tmp_path).dtype == torch.bfloat16
    assert load(tmp_path, torch.float32).dtype == torch.float32


def test_float16_is_refused_but_converted_on_request(tmp_path: Path) -> None:
    save(tiny_model("llama").to(torch.float16), tmp_path)
    with pytest.raises(ValueError, match="float16 is not served; choose float32 or bfloat16"):
        load(tmp_path)
    assert load(tmp_path, torch.float32).dtype == torch.float32


def test_progress_goes_to_stderr_only_when_asked(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(checkpoint)
    assert capsys.readouterr() == ("", "")
    load_model(checkpoint, device=torch.device("cpu"), dtype=None, show_progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "Loading layers: 100%" in err
