"""The bar that no thread draws."""

import io
import threading

import pytest
from rich.console import Console

from real.progress import Meter


@pytest.mark.parametrize("terminal", [True, False])
def test_it_draws_when_told_and_on_a_terminal_only(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80)
    monkeypatch.setattr("real.progress.err", lambda: console)
    threads = threading.active_count()
    with Meter("running [/trace]", 4) as meter:
        meter.at(2)
        assert threading.active_count() == threads
    assert ("running [/trace]" in text.getvalue()) == terminal
