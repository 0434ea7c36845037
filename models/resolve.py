"""A user's name for a model -> the directory of its checkpoint."""

from __future__ import annotations

from pathlib import Path

DEMO_NAME = "demo"


def resolve_model(name_or_path: str) -> Path:
    """The checkpoint directory; "demo" builds the demo checkpoint if this machine has none yet.

    Raises:
        ValueError: there is no such directory, or the demo cannot be built; says why.
    """
    if name_or_path == DEMO_NAME:
        from models.demo import demo_checkpoint  # noqa: PLC0415 - else `-m models.demo` warns

        return demo_checkpoint()
    path = Path(name_or_path).expanduser()
    if not path.is_dir():
        raise ValueError(f"model {name_or_path!r} is neither {DEMO_NAME!r} nor a directory on this machine")
    return path
