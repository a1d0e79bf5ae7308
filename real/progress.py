"""A bar on stderr that no thread draws: the process's CPU time is being measured, and drawing would count in it."""

import time
from types import TracebackType

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from traces.terminal import err

REDRAW_S = 0.5
"""Shortest time between two drawings."""


class Meter:
    """How much of a measurement is done; drawn when told, between batches, and only on a terminal."""

    def __init__(self, name: str, total: float) -> None:
        console = err()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
        self._bar = Bar(
            *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
        )
        self._task = self._bar.add_task(name, total=total)
        self._drawn_s = -REDRAW_S

    def __enter__(self) -> "Meter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def at(self, done: float) -> None:
        """So much is done."""
        now_s = time.monotonic()
        if now_s - self._drawn_s >= REDRAW_S:
            self._drawn_s = now_s
            self._bar.update(self._task, completed=done, refresh=True)
