"""Published tables of measured times, by naming their columns.

``--map rows=Batch Size,prompt_tokens=Input,output_tokens=Output,seconds=Latency:ms`` says which column holds what:

    rows             requests computed together
    prompt_tokens    padded prompt of each
    output_tokens    tokens each generates, the first one (of the prefill) included
    context_tokens   keys and values each row reads in a decode step
    seconds          time of what the lengths say: a whole batch where there are output_tokens, a decode step where
                     there are context_tokens, else a prefill
    prefill_seconds  time of the prefill alone
    decode_seconds   time of one decode step: at context_tokens, else the mean step of a batch, whose context is
                     prompt_tokens + output_tokens / 2
    model, hardware, dtype   what was measured, where it differs from row to row

A time may name its unit after a colon: s (if none is named), ms, us or ns. ``--where COLUMN=VALUE`` keeps the rows
with that value; given again for the same column, with any of the values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sim.profile import CONDITIONS
from sim.timings import BATCH, DECODE, PREFILL, TimedRows, Timings, of_rows
from traces.errors import InputError, choices
from traces.numbers import DIGITS, nanoseconds, tokens, why
from traces.source import Source, blocks, place, sniff
from traces.trace import Floats, Ints

COUNTS = ("rows", "prompt_tokens", "output_tokens", "context_tokens")
TIMES = ("seconds", "prefill_seconds", "decode_seconds")
LABELS = ("model", "hardware", "dtype")
NOT_STATED = "not stated"
"""A condition of the measurement that neither table nor user says."""
ROLES = (*COUNTS, *TIMES, *LABELS)


@dataclass(frozen=True)
class TableMap:
    """Columns by role, and the unit of each time."""

    columns: Mapping[str, str]
    units: Mapping[str, str]


def parse_map(text: str) -> TableMap:
    """The map that ``--map`` describes.

    Raises:
        InputError: an unknown role or unit, a role twice, no time, or a time without the lengths it needs.
    """
    columns: dict[str, str] = {}
    units: dict[str, str] = {}
    for piece in text.split(","):
        role, equals, column = piece.strip().partition("=")
        if not equals or not column:
            raise InputError(f"--map: {piece!r} is not ROLE=COLUMN, such as rows=Batch Size")
        if role not in ROLES:
            raise InputError(f"--map: role {role!r} is not known; choose {choices(ROLES)}")
        if role in columns:
            raise InputError(f"--map: {role} is given twice")
        if role in TIMES:
            name, colon, unit = column.rpartition(":")
            column, units[role] = (name, unit) if colon else (column, "s")
            if units[role] not in DIGITS:
                raise InputError(f"--map: unit {unit!r} of {name} is not known; choose {choices(DIGITS)}")
        columns[role] = column
    if "rows" not in columns:
        raise InputError(f"--map: no column for rows in {text!r}")
    if not units:
        raise InputError(f"--map: no time in {text!r}; name one of {choices(TIMES)}")
    for role in units:
        _lengths(role, columns)
    return TableMap(columns, units)


def _lengths(role: str, columns: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
    """What a time is of, and the roles of the lengths that say so."""
    context = "context_tokens" in columns
    both = ("prompt_tokens", "output_tokens")
    if role == "decode_seconds" or (role == "seconds" and context):
        found = DECODE, ("context_tokens",) if context else both
    elif role == "seconds" and "output_tokens" in columns:
        found = BATCH, both
    else:
        found = PREFILL, ("prompt_tokens",)
    missing = [name for name in found[1] if name not in columns]
    if missing:
        raise InputError(f"--map: {role} needs {' and '.join(found[1])}; no column for {missing[0]}")
    return found


def read_table(
    path: Path, mapped: TableMap, where: Sequence[str] = (), about: Mapping[str, str] | None = None
) -> Timings:
    """The times of a table: CSV, JSON Lines or Parquet, plain or gzip.

    Args:
        path: the file.
        mapped: which column holds what.
        where: filters, each ``COLUMN=VALUE``.
        about: conditions of the measurement that the table itself does not say.

    Raises:
        InputError: no such file or column, no row, or a cell that is no count or time; one line with its place.
    """
    source = sniff(path)
    if source.container == "json":
        raise InputError(f"{path}: one JSON document; give CSV, JSON Lines or Parquet")
    for column in mapped.columns.values():
        if column not in source.columns:
            raise InputError(f"{path}: no column {column!r}; there are {', '.join(source.columns)}")
    table, source_row = _all_text(source)
    kept = _filtered(table, where, path)
    table, source_row = table.take(pa.array(kept)), source_row[kept]
    used = {column for role, column in mapped.columns.items()}
    counts = {
        role: _counts(source, source_row, table, mapped.columns[role])
        for role in COUNTS
        if role in mapped.columns
    }
    labels, group = _groups(table, {role: mapped.columns[role] for role in LABELS if role in mapped.columns})
    parts = []
    for role, unit in mapped.units.items():
        seconds = _seconds(source, source_row, table, mapped.columns[role], unit)
        phase, lengths = _lengths(role, mapped.columns)
        output = np.zeros(len(kept), np.int64)
        length = counts[lengths[0]]
        if phase == BATCH:
            output = counts["output_tokens"]
        elif phase == DECODE and lengths[0] == "prompt_tokens":
            length = length + counts["output_tokens"] // 2
        at = np.full(len(kept), phase)
        parts.append((at, counts["rows"], length, output, seconds, group, source_row))
    rows = TimedRows(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    apart = tuple(
        name for name in table.column_names if name not in used and len(pc.unique(table.column(name))) > 1
    )
    stated: dict[str, Any] = dict.fromkeys(CONDITIONS, NOT_STATED)
    stated |= {role: labels[0][role] for role in labels[0] if len({label[role] for label in labels}) == 1}
    for key, value in (about or {}).items():
        if key in mapped.columns:
            raise InputError(
                f"--about {key}={value}: --map takes {key} from the column {mapped.columns[key]!r}"
            )
        stated[key] = value
    return of_rows(rows, path.name, labels, stated, lambda row: place(source, row), apart)


def _all_text(source: Source) -> tuple[pa.Table, Ints]:
    """Every column as text without blanks around it, and the source row of each row."""
    batches, rows = [], []
    for block in blocks(source, source.columns, ["text"] * len(source.columns)):
        if block.broken:
            row, reason = next(iter(block.broken.items()))
            raise InputError(f"{place(source, row)}: {reason}")
        texts = [pc.utf8_trim_whitespace(pc.cast(column, pa.string())) for column in block.columns]
        batches.append(pa.table(texts, names=list(source.columns)))
        rows.append(block.rows)
    if not sum(map(len, batches)):
        raise InputError(f"{source.path}: no rows")
    return pa.concat_tables(batches).combine_chunks(), np.concatenate(rows)


def _filtered(table: pa.Table, where: Sequence[str], path: Path) -> Ints:
    wanted: dict[str, list[str]] = {}
    for text in where:
        column, equals, value = text.partition("=")
        if not equals or column not in table.column_names:
            raise InputError(
                f"--where {text!r} is not COLUMN=VALUE; columns are {', '.join(table.column_names)}"
            )
        wanted.setdefault(column, []).append(value.strip())
    kept = np.arange(len(table))
    for column, values in wanted.items():
        here = table.column(column).take(pa.array(kept))
        inside = pc.fill_null(pc.is_in(here, pa.array(values, pa.string())), False).to_numpy()
        if not inside.any():
            held = sorted(str(value) for value in pc.unique(here).to_pylist())
            more = ", ..." if len(held) > 12 else ""
            raise InputError(
                f"{path}: no row with {column}={' or '.join(values)}; it holds {', '.join(held[:12])}{more}"
            )
        kept = kept[inside]
    return kept


def _counts(source: Source, source_row: Ints, table: pa.Table, name: str) -> Ints:
    column = table.column(name).combine_chunks()
    values, usable = tokens(column)
    if not usable.all():
        i = int(np.argmin(usable))
        value = column[i].as_py()
        raise _bad_cell(source, int(source_row[i]), name, value, why(value, "tokens"))
    return values


def _seconds(source: Source, source_row: Ints, table: pa.Table, name: str, unit: str) -> Floats:
    column = table.column(name).combine_chunks()
    ticks, usable = nanoseconds(column, unit)
    bad = ~usable | (ticks <= 0)
    if bad.any():
        i = int(np.argmax(bad))
        value = column[i].as_py()
        reason = "not above 0" if usable[i] else why(value, "arrival")
        raise _bad_cell(source, int(source_row[i]), name, value, reason)
    return ticks / 1e9


def _bad_cell(source: Source, row: int, name: str, value: Any, reason: str) -> InputError:
    shown = "" if reason == "missing" else f" ({str(value)[:60]!r})"
    return InputError(f"{place(source, row)}, column {name}: {reason}{shown}")


def _groups(table: pa.Table, columns: Mapping[str, str]) -> tuple[list[dict[str, str]], Ints]:
    """Distinct labels, and which of them each row has."""
    if not columns:
        return [{}], np.zeros(len(table), np.int64)
    cells = np.array(
        [pc.fill_null(table.column(name), "").to_pylist() for name in columns.values()], dtype=str
    ).T
    distinct, group = np.unique(cells, axis=0, return_inverse=True)
    return [dict(zip(columns, map(str, row), strict=True)) for row in distinct], group.ravel()
