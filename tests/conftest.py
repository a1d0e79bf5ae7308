"""What the tests share: where the data lies, and how many tests were skipped for want of it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = Path(os.environ.get("SHARED_DATA") or ROOT / ".." / "shared" / "data")
NO_DATA = f"no shared data at {SHARED_DATA} (set SHARED_DATA)"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public traces and measurements, read only; a test that asks for it is skipped without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(NO_DATA)
    return SHARED_DATA.resolve()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End by saying how many tests found no shared data."""
    skipped = terminalreporter.stats.get("skipped", [])
    missing = sum(NO_DATA in str(report.longrepr) for report in skipped)
    terminalreporter.write_line(f"skipped for want of shared data: {missing}")
