"""From a file to a trace: recognise the format, read its columns, refuse or count what cannot be used.

Faithful: every usable row once, in order of arrival, ties in file order; nothing is clipped, sorted by
length, drawn or merged. Rows read = rows kept + rows dropped, always.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traces.errors import InputError, choices
from traces.files import guarded, open_bytes
from traces.formats import FORMATS
from traces.layout import Layout
from traces.numbers import Bools, in_plain_digits, nanoseconds, tokens, why
from traces.source import Block, Source, as_text, blocks, place, plain_number, sniff
from traces.trace import Ints, Trace

TEN_YEARS_NS = 10 * 366 * 86_400 * 10**9
"""Arrivals further apart than this are stamps of two different clocks."""
Cut = Callable[[list[str]], list[list[int]]]
"""A tokenizer: token ids of each text."""


def read(
    path: Path,
    *,
    format_name: str | None = None,
    layout: Layout | None = None,
    skip_bad: bool = False,
    cut: Cut | None = None,
) -> Trace:
    """The requests of a file.

    Args:
        path: CSV, JSON Lines, JSON or Parquet, plain or gzip.
        format_name: a key of :data:`traces.formats.FORMATS`; None: recognised from the content.
        layout: which columns to read instead, see :func:`traces.mapping.parse_map`.
        skip_bad: drop rows that cannot be used and count them by reason, instead of refusing the file.
        cut: the tokenizer, needed where the format holds text.

    Raises:
        InputError: the file or a row cannot be used; one line with file, line and column.
    """
    source = sniff(path)
    found: Iterable[Block]
    if layout is None and source.container == "jsonl" and not _fitting(source, format_name):
        # A document written on one line looks like the first of many rows.
        source = _as_document(source, format_name) or source
    if source.container == "json":
        if layout is not None:
            raise InputError(f"{path}: is one JSON document, not rows; --map cannot name its columns")
        layout, columns, left_out = _document(source, format_name)
        names = _names(source, layout)
        cells = [pa.array(map(as_text, columns[name]), pa.string()) for name in names]
        found = [Block(cells, np.arange(len(cells[0]), dtype=np.int64), left_out=left_out)]
    else:
        layout = layout or _recognise(source, format_name)
        names = _names(source, layout)
        found = blocks(source, names, [_kind(layout, name) for name in names])
    if layout.text and cut is None:
        raise InputError(f"{path}: holds text, not lengths; name a tokenizer to cut it (--tokenizer)")
    if cut is not None and not layout.text:
        raise InputError(f"{path}: holds lengths, not text; --tokenizer has nothing to cut")
    reading = _Reading(source, layout, names, skip_bad, cut)
    for block in found:
        reading.add(block)
    return reading.trace()


def _candidates(format_name: str | None) -> dict[str, tuple[Layout, ...]]:
    if format_name is None:
        return FORMATS
    if format_name not in FORMATS:
        raise InputError(f"format {format_name!r} is not known; choose {choices(FORMATS)}")
    return {format_name: FORMATS[format_name]}


def _fitting(source: Source, format_name: str | None) -> Layout | None:
    every = (layout for layouts in _candidates(format_name).values() for layout in layouts)
    return next((layout for layout in every if layout.fits(source.container, source.columns)), None)


def _as_document(source: Source, format_name: str | None) -> Source | None:
    document = replace(source, container="json", columns=())
    try:
        _document(document, format_name)
    except InputError:
        return None
    return document


def _recognise(source: Source, format_name: str | None) -> Layout:
    layout = _fitting(source, format_name)
    if layout is not None:
        return layout
    candidates = _candidates(format_name)
    looked_for = "; ".join(
        f"{name}: {' or '.join(', '.join(layout.asked) for layout in layouts if layout.document is None)}"
        for name, layouts in candidates.items()
        if any(layout.document is None and source.container in layout.containers for layout in layouts)
    )
    raise InputError(
        f"{source.path}: columns {', '.join(source.columns)[:200]} are of no known "
        f"{source.container} format; looked for {looked_for or 'none of this kind'}; "
        "--map names the columns of any file"
    )


def _document(source: Source, format_name: str | None) -> tuple[Layout, dict[str, list[Any]], dict[str, int]]:
    """Layout and columns of a file that is one JSON document."""
    candidates = _candidates(format_name)
    try:
        with guarded(source.path), open_bytes(source.path) as stream:
            document = json.load(stream, parse_float=plain_number, parse_constant=str)
    except RecursionError:
        raise InputError(f"{source.path}: JSON nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source.path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})"
        ) from None
    except ValueError as error:
        raise InputError(f"{source.path}: not JSON ({error})") from None
    for layouts in candidates.values():
        for layout in layouts:
            columns = layout.document(document) if layout.document is not None else None
            if columns is not None:
                return layout, *columns
    known = [name for name, layouts in candidates.items() if any(layout.document for layout in layouts)]
    looked_for = choices(known) if known else "none of this kind"
    raise InputError(f"{source.path}: a JSON document of no known format; looked for {looked_for}")


def _names(source: Source, layout: Layout) -> list[str]:
    """The columns to read: arrival (where there is one), prompt, output, the optional ones."""
    names = [name for name in (layout.arrival, layout.prompt, layout.output) if name is not None]
    if layout.document is None:
        for name in names:
            count = source.columns.count(name)
            if count != 1:
                said = "occurs twice" if count else f"is missing; there are {', '.join(source.columns)[:200]}"
                raise InputError(
                    f"{source.path}, {source.counted} {source.skip_lines or 1}: column {name} {said}"
                )
        names += [name for name in layout.optional if source.columns.count(name) == 1]
    return names


def _kind(layout: Layout, name: str) -> str:
    iso = name == layout.arrival and layout.unit == "iso"
    return "text" if iso or name in layout.text else "number"


@dataclass
class _Reading:
    """Columns kept so far, block by block."""

    source: Source
    layout: Layout
    names: list[str]
    skip_bad: bool
    cut: Cut | None
    kept: list[list[Ints]] = field(default_factory=list)
    rows: list[Ints] = field(default_factory=list)
    ids: list[NDArray[np.int32]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, block: Block) -> None:
        """Take the usable rows of a block; refuse or count the rest."""
        columns: list[Ints] = []
        usable: list[Bools] = []
        ids: list[list[int]] = []
        for name, cells in zip(self.names, block.columns, strict=True):
            if name == self.layout.arrival:
                values, good = nanoseconds(cells, self.layout.unit)
            elif name in self.layout.text and self.cut is not None:
                texts = self.cut([text or "" for text in cells.to_pylist()])
                ids = texts if name == self.layout.prompt else ids
                values = np.fromiter(map(len, texts), np.int64, len(texts))
                good = values > 0
            else:
                values, good = tokens(cells)
                good |= (name == "source_row") & (values == 0)
            columns.append(values)
            usable.append(good)
        failed = np.zeros(len(block.rows), np.bool_)
        if self.layout.failed is not None:
            failed = columns[self.names.index(self.layout.output)] == 0
            self._count(self.layout.failed, int(failed.sum()))
        keep = np.logical_and.reduce(usable) & ~failed
        self._refuse(block, usable, failed)
        self._count_all(block.left_out)
        whole = bool(keep.all())
        self.kept.append([column if whole else column[keep] for column in columns])
        self.rows.append(block.rows if whole else block.rows[keep])
        if ids:
            kept_ids = [text for text, k in zip(ids, keep, strict=True) if k]
            self.ids.append(np.fromiter((i for text in kept_ids for i in text), np.int32))

    def _count(self, reason: str, rows: int) -> None:
        if rows:
            self.dropped[reason] += rows

    def _count_all(self, reasons: dict[str, int]) -> None:
        for reason, rows in reasons.items():
            self._count(reason, rows)

    def _refuse(self, block: Block, usable: list[Bools], failed: Bools) -> None:
        """Raise for the first row that is neither usable nor failed, or count all of them by reason."""
        bad = np.flatnonzero(~np.logical_and.reduce(usable) & ~failed)
        if not self.skip_bad:
            first = int(block.rows[bad[0]]) if len(bad) else None
            if block.broken and (first is None or min(block.broken) < first):
                row = min(block.broken)
                raise InputError(f"{place(self.source, row)}: {block.broken[row]}")
            if first is not None:
                name, value, reason = self._fault(block, usable, int(bad[0]))
                shown = "" if reason == "missing" else f" ({in_plain_digits(value)[:60]!r})"
                raise InputError(f"{place(self.source, first)}, column {name}: {reason}{shown}")
        self._count_all(Counter(block.broken.values()))
        for i in bad.tolist():
            name, _, reason = self._fault(block, usable, i)
            self._count(f"{name}: {reason}", 1)

    def _fault(self, block: Block, usable: list[Bools], i: int) -> tuple[str, Any, str]:
        """Column, value and reason of the first unusable cell of a row."""
        at = next(k for k, good in enumerate(usable) if not good[i])
        name, value = self.names[at], block.columns[at][i].as_py()
        if name in self.layout.text:
            return name, value, "no token"
        role = "arrival" if name == self.layout.arrival else "tokens"
        return name, value, why(value, role)

    def trace(self) -> Trace:
        """The trace of all that was kept, re-based to its first row in whole nanoseconds."""
        path = self.source.path
        rows = np.concatenate(self.rows) if self.rows else np.empty(0, np.int64)
        if len(rows) == 0:
            why_none = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
            raise InputError(f"{path}: no usable request ({why_none or 'no rows'})")
        column = {}
        for at, name in enumerate(self.names):
            column[name] = np.concatenate([block[at] for block in self.kept])
            for block in self.kept:
                block[at] = rows[:0]
        arrival = column.get(self.layout.arrival or "", np.zeros(len(rows), np.int64))
        order, moved_rows = None, 0
        if np.any(arrival[1:] < arrival[:-1]):
            earliest_after = np.minimum.accumulate(arrival[::-1])[::-1]
            moved_rows = int((arrival > earliest_after).sum())
            order = np.argsort(arrival, kind="stable")
            arrival = arrival[order]
        self._one_clock(arrival, rows if order is None else rows[order])
        trace = Trace(
            name=path.name,
            arrival_ns=arrival - arrival[0],
            prompt_tokens=_in(order, column[self.layout.prompt]),
            output_tokens=_in(order, column[self.layout.output]),
            source_row=_in(order, column.get("source_row", rows)),
            dropped=dict(self.dropped),
            moved_rows=moved_rows,
            timed=self.layout.arrival is not None,
        )
        if "predicted_output_tokens" in column:
            trace = replace(trace, predicted_output_tokens=_in(order, column["predicted_output_tokens"]))
        if self.ids:
            # Formats that hold text have no arrivals to sort by.
            trace = replace(trace, prompt_ids=np.concatenate(self.ids))
        return trace

    def _one_clock(self, arrival: Ints, rows: Ints) -> None:
        if int(arrival[-1]) - int(arrival[0]) <= TEN_YEARS_NS:
            return
        after = int(np.argmax(np.diff(arrival.astype(np.float64)))) + 1
        years = (int(arrival[-1]) - int(arrival[0])) / (TEN_YEARS_NS / 10)
        raise InputError(
            f"{place(self.source, int(rows[after]))}, column {self.layout.arrival}: "
            f"arrivals span {years:.0f} years; stamps of two clocks, or another unit?"
        )


def _in(order: Ints | None, column: Ints) -> Ints:
    return column if order is None else column[order]
