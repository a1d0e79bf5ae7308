"""Which part may import which: traces <- sim <- real, and torch in real alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {"traces": {"traces"}, "sim": {"traces", "sim"}, "real": {"traces", "sim", "real"}}
OURS = {"traces", "sim", "real", "compare", "tests", "benchmarks"}
HEAVY = {"torch", "transformers", "safetensors", "triton"}


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports, wherever in it, as a statement or by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {str(a.value).partition(".")[0] for a in node.args if isinstance(a, ast.Constant)}
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_run_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        names = imported(path)
        assert names & OURS <= MAY_IMPORT[package], path
        if package != "real":
            assert not names & HEAVY, path


def test_planning_loads_no_torch() -> None:
    """Every module of traces and sim at once, and a whole run: nothing pulls torch in by a side door."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("traces", "sim")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__main__.py"
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "from sim.__main__ import app\n"
        "from traces.terminal import exit_code\n"
        "assert exit_code(app, 'sim', ['run', 'textbook', '--at-once']) == 0\n"
        f"assert not {HEAVY!r} & set(sys.modules), sorted({HEAVY!r} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
