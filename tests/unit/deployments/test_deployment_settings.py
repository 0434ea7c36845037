from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deployments.launch_config import read_launch_config
from deployments.launch_proof import curl_line
from deployments.settings import Settings, load_settings
from engine import EngineConfig
from tests.serve.served_app import free_port

CONFIGS = Path(__file__).parents[3] / "deployments" / "configs"


def test_every_engine_setting_reaches_the_engine() -> None:
    engine = {
        "block_size": 8, "kv_cache_gib": 2.5, "max_model_len": 99, "max_num_seqs": 3, "max_num_batched_tokens": 77,
        "max_waiting": 5, "enable_prefix_caching": False, "num_threads": 2,
    }  # fmt: skip
    model = {"path": "p", "dtype": "bfloat16", "device": "cpu"}
    config = load_settings({"model": model, "engine": engine}).engine_config()
    assert config == EngineConfig(model="p", dtype="bfloat16", device="cpu", **engine)  # type: ignore[arg-type]
    assert Settings().engine_config() == EngineConfig()


def test_wrong_settings_are_all_named() -> None:
    with pytest.raises(ValueError, match="bad settings") as caught:
        load_settings({"engine": {"blok_size": 8, "max_num_seqs": 0}, "model": {"dtype": "float8"}, "extra": 1})
    for name in ("args.engine.blok_size", "args.engine.max_num_seqs", "args.model.dtype", "args.extra"):
        assert name in str(caught.value)


@pytest.mark.parametrize(("path", "name", "expected"), [("demo", None, "demo"), ("/a/b/", None, "b"), ("/a", "x", "x")])
def test_the_model_id(path: str, name: str | None, expected: str) -> None:
    assert load_settings({"model": {"path": path, "served_name": name}}).model.model_id == expected


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_the_configs_we_ship_are_good(path: Path) -> None:
    port = free_port()
    config = read_launch_config(path, port)
    assert config.port == port
    assert config.url == f"http://127.0.0.1:{port}"
    assert f"127.0.0.1:{port}/v1/chat/completions" in curl_line(config)


def test_a_taken_port_is_said_before_anything_starts(taken_port: int) -> None:
    with pytest.raises(ValueError, match=f"port {taken_port}.*in use"):
        read_launch_config(CONFIGS / "local.yaml", taken_port)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "not YAML"),
        ("- 1", "must be a mapping"),
        ("{}", "applications"),
        ("applications: []", "one application"),
        ("applications: [{name: x, import_path: 'other:app'}]", "import_path"),
        ("http_options: 5", "http_options"),
        (
            "applications: [{name: x, import_path: 'deployments.app:build_app', args: {engine: {typo: 1}}}]",
            "args.engine.typo",
        ),
    ],
)
def test_a_bad_config_says_why(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_launch_config(path, free_port())


def test_a_missing_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_launch_config(tmp_path / "c.yaml", None)


def test_api_keys_are_used_but_not_shown(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sesame\n")
    document = yaml.safe_load((CONFIGS / "local.yaml").read_text())
    document["applications"][0]["args"]["http"]["api_keys_file"] = str(keys)
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(document))
    config = read_launch_config(path, free_port())
    assert config.api_key == "sesame"
    assert "sesame" not in curl_line(config)
    assert "Bearer KEY" in curl_line(config)
