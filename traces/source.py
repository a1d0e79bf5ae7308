"""Files opened and cut into blocks of named columns: CSV, JSON Lines and Parquet, plain or gzip.

A block is a few megabytes of rows as Arrow columns, so a file of any length needs memory only for what is
kept of it. Rows that are no rows (wrong number of cells, no JSON object) come along by number and reason.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from traces.errors import InputError
from traces.files import BLOCK_BYTES, Utf8, guarded, open_bytes, open_text
from traces.progress import Progress
from traces.trace import Ints

SNIFFED_CHARACTERS = 1 << 28
"""The longest first line that is looked at to tell what a file is."""


@dataclass(frozen=True)
class Source:
    """A file that exists, and what it looks like from its first line."""

    path: Path
    container: str
    """``csv``, ``jsonl``, ``parquet``, or ``json`` for one document."""
    columns: tuple[str, ...]
    """Header of a CSV file, schema of a Parquet file, keys of the first JSON row or of the document."""
    skip_lines: int = 0
    """Lines of a CSV file up to and with the header."""
    delimiter: str = ","

    @property
    def counted(self) -> str:
        """What rows are counted in, for error lines."""
        return {"csv": "line", "jsonl": "line", "json": "entry", "parquet": "row"}[self.container]


@dataclass(frozen=True)
class Block:
    """Some rows: the asked columns in order, the number of each row in its source, and rows that are none."""

    columns: list[pa.Array]
    rows: Ints
    broken: dict[int, str] = field(default_factory=dict)
    """Reason by source row, of rows that are not among ``columns`` because they are damaged."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Rows not among ``columns`` because the format knows them for no request, by reason."""


def sniff(path: Path) -> Source:
    """What a file is, from its first bytes and first line.

    Raises:
        InputError: no such file, a folder, empty, binary, or not UTF-8.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a trace file")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: not a regular file")
    with guarded(path), open_bytes(path) as stream:
        head = stream.read(4)
    if head == b"PAR1":
        with guarded(path), path.open("rb") as raw, pa.parquet.ParquetFile(raw) as file:
            return Source(path, "parquet", tuple(file.schema_arrow.names))
    with guarded(path), open_bytes(path) as stream:
        start = stream.read(65536)
    if b"\0" in start or start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: binary, or not UTF-8 text; CSV, JSON or Parquet is read, plain or gzip")
    skipped, text = 0, ""
    with guarded(path), open_text(path) as lines:
        while not text.strip():
            text = lines.readline(SNIFFED_CHARACTERS)
            skipped += 1
            if not text:
                raise InputError(f"{path}: empty")
    if "\ufffd" in text:
        raise InputError(f"{path}, line {skipped}: not UTF-8 text")
    if text.lstrip().startswith(("{", "[")):
        return _sniff_json(path, text)
    delimiter = next((d for d in (",", ";", "\t") if d in text), ",")
    try:
        names = next(csv.reader([text], delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"{path}, line {skipped}: {error}") from None
    return Source(path, "csv", tuple(name.strip() for name in names), skipped, delimiter)


def _sniff_json(path: Path, first: str) -> Source:
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict):
        return Source(path, "jsonl", tuple(row))
    return Source(path, "json", ())


def blocks(source: Source, names: Sequence[str], kinds: Sequence[str]) -> Iterator[Block]:
    """The rows of a file, a block at a time, with the columns ``names``.

    ``kinds`` says of each column whether it holds a ``number`` or ``text``; it matters for JSON only.
    """
    read = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}[source.container]
    with guarded(source.path), Progress.reading(source.path) as progress:
        yield from read(source, names, kinds, progress)


def _csv(source: Source, names: Sequence[str], kinds: Sequence[str], progress: Progress) -> Iterator[Block]:
    del kinds
    misfits: dict[int, str] = {}
    width = len(source.columns)

    def misfit(row: Any) -> str:
        cells = f"{row.actual_columns} cells where the header has {row.expected_columns}"
        misfits[row.number - 1 - source.skip_lines] = cells
        return "skip"

    keys = [str(i) for i in range(width)]
    wanted = [keys[source.columns.index(name)] for name in names]
    if not _has_rows(source, source.skip_lines):
        return
    with open_bytes(source.path) as raw, Utf8(source.path, raw, progress) as stream:
        reader = pa.csv.open_csv(
            stream,
            # One thread: only then does Arrow say which row has too many cells or too few.
            pa.csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, skip_rows=source.skip_lines, column_names=keys
            ),
            pa.csv.ParseOptions(
                delimiter=source.delimiter, invalid_row_handler=misfit, newlines_in_values=True
            ),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.string()),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
        start = 0
        told: set[int] = set()
        for batch in reader:
            count = batch.num_rows
            rows = np.arange(start, start + count, dtype=np.int64)
            if misfits:
                around = np.arange(start, start + count + len(misfits), dtype=np.int64)
                rows = around[~np.isin(around, list(misfits))][:count]
            fresh = {row: reason for row, reason in misfits.items() if row not in told}
            told.update(fresh)
            start = int(rows[-1]) + 1 if count else start
            yield Block([batch.column(key) for key in wanted], rows, fresh)
        left = {row: reason for row, reason in misfits.items() if row not in told}
        if left:
            yield Block([pa.array([], pa.string())] * len(wanted), np.empty(0, np.int64), left)


def _has_rows(source: Source, lines: int) -> bool:
    """Whether anything but line ends follows the header; Arrow has no reader for a file without rows."""
    with open_text(source.path) as text:
        for _ in range(lines):
            text.readline()
        while line := text.readline(65536):
            if line.strip("\n"):
                return True
    return False


def _jsonl(source: Source, names: Sequence[str], kinds: Sequence[str], progress: Progress) -> Iterator[Block]:
    # Decimals: JSON numbers are text, and a float64 of Unix seconds would lose their last digits.
    types = {"number": pa.decimal128(38, 18), "text": pa.string()}
    schema = pa.schema([(name, types[kind]) for name, kind in zip(names, kinds, strict=True)])
    start = 0
    with open_bytes(source.path) as stream:
        while data := stream.read(BLOCK_BYTES // 2):
            data += stream.readline()
            if not start:
                data = data.removeprefix(b"\xef\xbb\xbf")
            lines = data.count(b"\n") + (not data.endswith(b"\n"))
            block = _arrow_json(data, schema, lines, start)
            if block is None:
                block = _python_json(data, names, start)
            start += len(block.rows) + len(block.broken)
            progress.add(len(data))
            yield block


def _arrow_json(data: bytes, schema: pa.Schema, lines: int, start: int) -> Block | None:
    """The block by Arrow, or None where it refuses it or sees other rows than lines."""
    try:
        table = pa.json.read_json(
            io.BytesIO(data),
            pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != lines:
        return None
    columns = [table.column(name).combine_chunks() for name in schema.names]
    return Block(columns, np.arange(start, start + lines, dtype=np.int64))


def _python_json(data: bytes, names: Sequence[str], start: int) -> Block:
    """The same line by line, for a block with a row that Arrow refuses; every value becomes text."""
    cells: list[list[str | None]] = [[] for _ in names]
    rows: list[int] = []
    broken: dict[int, str] = {}
    row = start
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            values = json.loads(line, object_pairs_hook=_once, parse_float=plain_number, parse_constant=str)
        except (ValueError, RecursionError):
            values = None
        if isinstance(values, dict):
            rows.append(row)
            for column, name in zip(cells, names, strict=True):
                column.append(as_text(values.get(name)))
        else:
            broken[row] = "not a JSON object"
        row += 1
    return Block([pa.array(column, pa.string()) for column in cells], np.array(rows, np.int64), broken)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key twice")
    return values


def plain_number(text: str) -> str:
    """1e3 is a whole number in JSON: write it out, so that it reads the same as in a block taken by Arrow."""
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent of hundreds of digits
        return text
    return format(number, "f") if abs(number.adjusted()) < 40 else text


def as_text(value: Any) -> str | None:
    """A JSON value as the text that the number columns are read from."""
    return None if value is None else str(value)


def _parquet(
    source: Source, names: Sequence[str], kinds: Sequence[str], progress: Progress
) -> Iterator[Block]:
    del kinds
    start = 0
    with source.path.open("rb") as raw, pa.parquet.ParquetFile(raw) as file:
        for batch in file.iter_batches(batch_size=1 << 20, columns=list(names)):
            rows = np.arange(start, start + batch.num_rows, dtype=np.int64)
            start += batch.num_rows
            progress.part(start / max(file.metadata.num_rows, 1))
            yield Block([batch.column(name) for name in names], rows)


def place(source: Source, row: int) -> str:
    """Where a row stands, as ``FILE, line 12``: counted in lines of the file, header and blank lines
    included."""
    if source.container == "csv":
        number = _csv_line(source, row)
    elif source.container == "jsonl":
        with open_bytes(source.path) as stream:
            number = _nth((bool(line.strip()) for line in stream), row)
    else:
        number = row + 1
    return f"{source.path}, {source.counted} {number}"


def _csv_line(source: Source, row: int) -> int:
    with open_text(source.path, newline="") as text:
        reader = csv.reader((line.replace("\0", "?") for line in text), delimiter=source.delimiter)
        seen = -1
        before = 0
        try:
            for cells in reader:
                seen += bool(cells)
                if seen == row + 1:
                    return before + 1
                before = reader.line_num
        except csv.Error:
            pass
        return before + 1


def _nth(filled: Iterator[bool], row: int) -> int:
    seen = -1
    for number, is_row in enumerate(filled, 1):
        seen += is_row
        if seen == row:
            return number
    return row + 1
