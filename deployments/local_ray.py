"""A Ray of our own on this machine: started, given a Serve config, ended without a trace."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OBJECT_STORE_BYTES = 256 * 2**20  # requests and tokens are small; by default Ray takes 30% of the memory
# How long processes may take to end by themselves once Ray has been told to stop.
_END_LIMIT_S = 5.0


class DeployError(Exception):
    """Serve did not take the config or could not run the application; says why."""


def prepare_environment() -> None:
    """To be called before ray is imported, which reads these variables.

    Ray's ports can be reached from outside this process: a token, made anew each time, keeps others out. Whoever has
    set one of the variables keeps what they set.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # replicas import our packages from here


@contextmanager
def local_ray(temp_dir: Path) -> Iterator[str]:
    """Ray with its files in `temp_dir`, whose path must be short: a socket's may have 107 characters. Yields its
    address. All processes are gone at the end."""
    import ray  # noqa: PLC0415 - see prepare_environment

    try:
        ray.init(
            address="local",  # never one that happens to run here
            namespace="serve",  # else serve.status() does not find the controller
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,  # what replicas print is in their logs, and a failure's reason in the status
            logging_level=logging.WARNING,
            _temp_dir=str(temp_dir),
        )
        yield ray.get_runtime_context().gcs_address
    finally:
        pids = _descendants(os.getpid())
        ray.shutdown()
        _end(pids)


def deploy(config_file: Path, address: str) -> None:
    """Hand the config to Serve as `serve run` does; what it deploys comes up afterwards.

    Raises:
        DeployError: Serve refused it.
    """
    command = [sys.executable, "-m", "ray.serve.scripts", "run", "--non-blocking", "--address", address]
    done = subprocess.run([*command, str(config_file)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0 or "Submitted deploy config successfully" not in done.stdout:
        raise DeployError(f"serve run ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def app_state(app_name: str) -> tuple[str, bool]:
    """The application's state as one line, and whether it runs.

    Raises:
        DeployError: it has failed.
    """
    from ray import serve  # noqa: PLC0415 - see prepare_environment

    app = serve.status().applications.get(app_name)
    if app is None:
        return "waiting for Serve", False
    if app.status in ("DEPLOY_FAILED", "UNHEALTHY"):
        reasons = [app.message, *(f"{name}: {d.message}" for name, d in app.deployments.items() if d.message)]
        raise DeployError("\n".join(reasons))
    parts = [f"{name} {deployment.status.value.lower()}" for name, deployment in app.deployments.items()]
    return ", ".join(parts) or "building the application", app.status == "RUNNING"


def _descendants(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found.update(new)
        todo += new
    return found


def _end(pids: set[int]) -> None:
    """Wait for all to end. Those that do not in time, as when Ray was interrupted half started, are made to."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _END_LIMIT_S
        while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in filter(_runs, pids):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signum)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
