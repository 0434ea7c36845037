"""The import order of the packages, and the house rules that a reader relies on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each package may import those before it in its own row, and nothing else of ours.
ALLOWED: dict[str, set[str]] = {
    "router": set(),
    "kv_cache": set(),
    "kernels": set(),
    "expert_parallel": {"router", "kv_cache", "kernels"},
    "models": {"router", "kv_cache", "kernels", "expert_parallel"},
    "engine": {"router", "kv_cache", "kernels", "expert_parallel", "models"},
    "deployments": {"router", "kv_cache", "kernels", "expert_parallel", "models", "engine"},
}
ONLY_IN_DEPLOYMENTS = {"ray", "fastapi", "starlette", "pydantic"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_stands_before_it(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        ours = imported(path) & set(ALLOWED)
        assert ours <= ALLOWED[package] | {package}, path


@pytest.mark.parametrize("package", [name for name in ALLOWED if name != "deployments"])
def test_only_deployments_knows_ray_and_http(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        assert not imported(path) & ONLY_IN_DEPLOYMENTS, path


def test_every_package_is_shipped_and_none_shadows_the_standard_library() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages == set(ALLOWED)
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{package}"' in pyproject for package in packages)
    assert not list(ROOT.glob("*.py"))


def test_files_and_functions_stay_small() -> None:
    for package in (*ALLOWED, "tests", "benchmarks"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            assert text.count("\n") <= 400, path
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    assert (node.end_lineno or 0) - node.lineno < 60, f"{path}: {node.name}"
