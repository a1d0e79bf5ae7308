"""What a trace format is: which columns of which kind of file hold what."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROLES = ("arrival_s", "prompt_tokens", "output_tokens")
"""The columns every format comes down to; the first may be absent: offline work."""

Columns = tuple[dict[str, list[Any]], dict[str, int]]
"""Columns of a JSON document by name, and entries that are no request by reason."""


@dataclass(frozen=True)
class Layout:
    """Columns of one format, by name. A format is one or more of these, the first that fits is taken."""

    containers: tuple[str, ...]
    """``csv``, ``jsonl``, ``parquet``, or ``json`` for one document."""
    prompt: str
    output: str
    arrival: str | None = None
    """None: the format has no arrival times."""
    unit: str = "s"
    """Unit of the arrival, one of :data:`traces.numbers.UNITS`."""
    also: tuple[str, ...] = ()
    """Other columns that tell this format from its like."""
    failed: str | None = None
    """Reason under which rows with an output of 0 are dropped; None: such a row is an error."""
    optional: tuple[str, ...] = ()
    """Columns kept where they are there: ``source_row``, ``predicted_output_tokens``."""
    text: tuple[str, ...] = ()
    """Those of ``prompt`` and ``output`` that hold text, to be cut by a tokenizer."""
    document: "Callable[[Any], Columns | None] | None" = None
    """Columns of a JSON document, None where it isn't of this format."""

    @property
    def asked(self) -> tuple[str, ...]:
        """Every column that must be there."""
        times = () if self.arrival is None else (self.arrival,)
        return (*times, self.prompt, self.output, *self.also)

    def fits(self, container: str, columns: tuple[str, ...]) -> bool:
        """Whether a file with these columns can be read this way."""
        return (
            self.document is None
            and container in self.containers
            and all(column in columns for column in self.asked)
        )
