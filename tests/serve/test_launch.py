"""`make serve`'s command as a user meets it: what it prints, and what it leaves behind."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.serve.served_app import free_port

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "deployments" / "configs" / "local.yaml"
LIMIT_S = 180.0


def config_with(tmp_path: Path, section: str, **settings: object) -> Path:
    document = yaml.safe_load(LOCAL.read_text())
    document["applications"][0]["args"][section].update(settings)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def launched(config: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own, which is empty at the end."""
    command = [sys.executable, "-m", "deployments.launch", "--config", str(config), "--port", str(port)]
    temp_dirs = set(Path(tempfile.gettempdir()).glob("ty-*"))
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    watchdog = threading.Timer(LIMIT_S, process.terminate)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.terminate()
        process.wait(LIMIT_S)
    assert session_members(process.pid) == []
    assert set(Path(tempfile.gettempdir()).glob("ty-*")) <= temp_dirs


def session_members(session: int) -> list[str]:
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = stat.read_text().rpartition(")")
        except OSError:  # it has ended meanwhile
            continue
        if int(fields.split()[3]) == session and fields.split()[0] != "Z":
            members.append(name)
    return members


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if text in line:
            return output
    pytest.fail(f"it ended without {text!r}:\n{output}")


def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    with launched(config_with(tmp_path, "engine", kv_cache_gib=0.25), port) as process:
        output = read_until(process, "Ctrl-C ends it")
        assert "> The capital of France is Paris." in output
        assert f"URL    http://127.0.0.1:{port}/v1" in output
        assert httpx2.get(f"http://127.0.0.1:{port}/v1/models").json()["data"][0]["id"] == "demo"
        (curl,) = [line for line in output.splitlines() if line.startswith("curl ")]
        answer = subprocess.run(shlex.split(curl), capture_output=True, text=True, timeout=LIMIT_S, check=True)
        assert answer.stdout.endswith("data: [DONE]\n\n")
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all that run in it
        assert process.wait(LIMIT_S) == 0


def test_it_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    with launched(config_with(tmp_path, "engine", kv_cache_gib=0.25), free_port()) as process:
        read_until(process, "Deploying")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_ctrl_c_ends_it_too_while_ray_starts(tmp_path: Path) -> None:
    with launched(config_with(tmp_path, "engine", kv_cache_gib=0.25), free_port()) as process:
        read_until(process, "Starting Ray")
        time.sleep(3)  # into the middle of it
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 0


def test_a_replica_that_cannot_start_says_why(tmp_path: Path) -> None:
    with launched(config_with(tmp_path, "engine", kv_cache_gib=1e-9), free_port()) as process:
        read_until(process, "kv_cache_gib is 1e-09, less than one block")
        assert process.wait(LIMIT_S) == 1


@pytest.mark.parametrize(
    ("section", "settings", "complaint", "status"),
    [
        ("model", {"path": "/nowhere"}, "'/nowhere' is neither 'demo' nor a directory", 1),
        ("engine", {"blok_size": 16}, "args.engine.blok_size", 2),
    ],
)
def test_a_config_that_cannot_work_starts_nothing(
    tmp_path: Path, section: str, settings: dict[str, object], complaint: str, status: int
) -> None:
    with launched(config_with(tmp_path, section, **settings), free_port()) as process:
        assert "Starting Ray" not in read_until(process, complaint)
        assert process.wait(LIMIT_S) == status
