"""Serve one config file with a Ray of its own on this machine, until Ctrl-C.

This is what `make serve` runs. The file means what it means to `serve run` and `serve deploy`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import yaml

from deployments.launch_proof import QUESTION, curl_line, first_answer, is_healthy
from deployments.local_ray import DeployError, app_state, deploy, local_ray, prepare_environment

if TYPE_CHECKING:
    from deployments.launch_config import LaunchConfig

# Loading tens of gigabytes from a slow disk takes minutes; a deployment that cannot work fails much sooner by itself.
READY_LIMIT_S = 900.0

Say = Callable[[str], None]


def main() -> int:
    """0 after Ctrl-C, 1 for a start that failed, 2 for a config that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m deployments.launch", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="a Serve config file")
    parser.add_argument("--port", type=int, help="instead of the file's http_options.port")
    options = parser.parse_args()
    _end_by_interrupt()
    try:
        return _launch(options.config, options.port)
    except KeyboardInterrupt:
        print("\nStopped.", flush=True)
        return 0


def _launch(config_file: Path, port: int | None) -> int:
    """Runs until interrupted; leaves neither a process nor a file behind."""
    say = _clock()
    say(f"Reading {config_file}")
    prepare_environment()
    from deployments.launch_config import read_launch_config  # noqa: PLC0415 - takes seconds

    try:
        config = read_launch_config(config_file, port)
    except ValueError as error:
        print(f"{config_file}: {error}", file=sys.stderr)
        return 2
    temp_dir = Path(tempfile.mkdtemp(prefix="ty-"))
    try:
        _run(config, temp_dir, say)
    except (DeployError, ValueError) as error:
        print(f"Could not start: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(temp_dir, ignore_errors=True)
    return 0


def _run(config: LaunchConfig, temp_dir: Path, say: Say) -> None:
    from models import resolve_model  # noqa: PLC0415 - takes seconds

    say(f"Finding the model {config.settings.model.path!r}")
    resolve_model(config.settings.model.path)
    effective = temp_dir / "serve.yaml"
    effective.write_text(yaml.safe_dump(dict(config.document)), encoding="utf-8")
    say("Starting Ray")
    with local_ray(temp_dir) as address:
        _end_by_interrupt()  # ray.init has put its own handler in place
        say("Deploying")
        deploy(effective, address)
        _wait_until_ready(config, say)
        _show(config, say)
        while True:
            signal.pause()


def _wait_until_ready(config: LaunchConfig, say: Say) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    said = ""
    while time.monotonic() < deadline:
        state, running = app_state(config.app_name)
        if state != said:
            say(state)
            said = state
        if running and is_healthy(config):
            return
        time.sleep(0.5)
    raise DeployError(f"not ready after {READY_LIMIT_S:.0f} s; the last state was: {said}")


def _show(config: LaunchConfig, say: Say) -> None:
    """One answer, as it comes, and what is needed to ask for more."""
    say(f"Ready. {QUESTION}")
    print("> ", end="")
    for text in first_answer(config):
        print(text, end="", flush=True)
    print(f"\n\nURL    {config.url}/v1\nModel  {config.settings.model.model_id}\n\n{curl_line(config)}\n")
    print("Ctrl-C ends it.", flush=True)


def _clock() -> Say:
    started = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - started:5.1f} s] {text}", flush=True)


def _end_by_interrupt() -> None:
    """Ctrl-C and a polite kill both end with what KeyboardInterrupt unwinds, even where a shell made us ignore them."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _interrupt)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)  # a second one must not stop the clean-up
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
