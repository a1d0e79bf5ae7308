"""A bar on stderr for work that takes longer than two seconds, on a terminal only."""

import time
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from traces.terminal import err

PATIENCE_S = 2.0
"""How long work may take in silence."""


class Progress:
    """How much of some work is done; draws nothing at all when that is quick or nobody watches."""

    def __init__(self, name: str, total: int) -> None:
        """``name`` says what is being done, ``total`` how much of it there is (bytes, requests, ...)."""
        self._name = name
        self._total = max(total, 1)
        self._done = 0
        self._started_s = time.monotonic()
        self._bar: Bar | None = None

    @classmethod
    def reading(cls, path: Path) -> "Progress":
        """Progress through the bytes of a file."""
        return cls(f"reading {path.name}", path.stat().st_size)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, done: int) -> None:
        """So much is done."""
        self._done = done
        self.part(done / self._total)

    def add(self, count: int) -> None:
        """So much more is done (unpacked bytes of a gzip file fill the bar early)."""
        self.at(self._done + count)

    def part(self, fraction: float) -> None:
        """This part of it is done."""
        if self._bar is None:
            console = err()
            if time.monotonic() - self._started_s < PATIENCE_S or not console.is_terminal:
                return
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, console=console, transient=True)
            self._bar.add_task(self._name, total=1.0)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=min(fraction, 1.0))
