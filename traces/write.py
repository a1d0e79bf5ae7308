"""A trace as a file: the project's own CSV, JSON Lines or Parquet, or the format of Azure, Mooncake or Vidur.

What is written reads back as the same requests at the same times, but for what a target cannot hold; that is
said, line by line, by :func:`lost`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from traces.errors import InputError, choices
from traces.formats.mooncake import BLOCK_TOKENS
from traces.output import whole_file
from traces.trace import Ints, Trace

AZURE_START_NS = 1_700_092_800 * 10**9
"""Where an Azure file's clock starts when a trace is written as one: 2023-11-16 00:00:00."""
CHUNK_ROWS = 1 << 18


def write(trace: Trace, path: Path, target: str | None = None) -> None:
    """Write a trace to a file, whole or not at all.

    Args:
        trace: what to write.
        path: the file; its suffix is the target where none is named.
        target: a key of :data:`TARGETS`.

    Raises:
        InputError: no such target, or none that goes with the suffix.
    """
    target = target or path.suffix.removeprefix(".")
    if target not in TARGETS:
        raise InputError(f"{path}: cannot write format {target!r}; choose {choices(TARGETS)} (--to)")
    if path.is_dir():
        raise InputError(f"{path}: is a folder")
    with whole_file(path) as file:
        TARGETS[target](trace, file)


def lost(trace: Trace, target: str) -> list[str]:
    """What a target cannot hold of this trace, one line each."""
    lines = []
    if target not in PLAIN:
        if trace.predicted_output_tokens is not None:
            lines.append("predicted_output_tokens")
        if not _numbered(trace):
            lines.append("source_row: rows are numbered anew, so requests get other prompts")
    if trace.closed_loop is not None:
        lines.append(f"the closed loop of {trace.closed_loop.clients} clients: all rows are offline work")
    if trace.prompt_ids is not None:
        lines.append("prompt token ids: only their lengths are written")
    if not trace.timed and target in ("azure", "mooncake"):
        lines.append("that there are no arrival times: all rows are at one time")
    if target == "mooncake" and np.any(trace.arrival_ns % 10**6):
        lines.append("times below a millisecond: arrivals are rounded")
    if target == "mooncake":
        lines.append("shared prefixes: every block of a prompt gets a hash of its own")
    if target == "azure":
        lines.append("a clock from 0: times are counted from 2023-11-16 00:00:00")
    if trace.history:
        lines.append(f"the history: {', '.join(str(step['name']) for step in trace.history)}")
    if trace.dropped:
        lines.append(f"that {sum(trace.dropped.values())} rows were dropped")
    return lines


def _numbered(trace: Trace) -> bool:
    return bool(np.array_equal(trace.source_row, np.arange(len(trace))))


def _table(trace: Trace, arrival: str) -> pa.Table:
    """The columns of the plain format; those that say nothing are left out."""
    columns = {arrival: pa.array(trace.arrival_ns)} if trace.timed else {}
    columns |= {
        "prompt_tokens": pa.array(trace.prompt_tokens),
        "output_tokens": pa.array(trace.output_tokens),
    }
    if not _numbered(trace):
        columns["source_row"] = pa.array(trace.source_row)
    if trace.predicted_output_tokens is not None:
        columns["predicted_output_tokens"] = pa.array(trace.predicted_output_tokens)
    return pa.table(columns)


def _seconds(arrival_ns: pa.Array) -> pa.Array:
    """Nanoseconds as text in seconds: exact, no more digits than needed."""
    whole, fraction = np.divmod(arrival_ns.to_numpy(), 10**9)
    padded = pc.utf8_lpad(_text(pa.array(fraction)), 9, "0")
    digits = pc.binary_join_element_wise(_text(pa.array(whole)), pc.utf8_rtrim(padded, "0"), ".")
    return pc.replace_substring_regex(digits, r"\.$", "")


def _lines(file: BinaryIO, table: pa.Table, line: Callable[[list[pa.Array]], pa.Array], end: bytes) -> None:
    """Write ``line`` of the columns, a chunk of rows at a time."""
    for start in range(0, len(table), CHUNK_ROWS):
        part = table.slice(start, CHUNK_ROWS).combine_chunks()
        texts = line([column.chunk(0) for column in part.columns])
        file.write(end.join(text.encode() for text in texts.to_pylist()) + end)


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _csv(trace: Trace, file: BinaryIO) -> None:
    table = _table(trace, "arrival_s")
    file.write(",".join(table.column_names).encode() + b"\n")
    first = _seconds if trace.timed else _text
    _lines(file, table, lambda c: pc.binary_join_element_wise(first(c[0]), *map(_text, c[1:]), ","), b"\n")


def _jsonl(trace: Trace, file: BinaryIO) -> None:
    table = _table(trace, "arrival_s")
    first = _seconds if trace.timed else _text

    def line(columns: list[pa.Array]) -> pa.Array:
        cells = [first(columns[0]), *map(_text, columns[1:])]
        keyed = [
            pc.binary_join_element_wise(f'"{name}": ', cell, "")
            for name, cell in zip(table.column_names, cells, strict=True)
        ]
        return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*keyed, ", "), "}", "")

    _lines(file, table, line, b"\n")


def _parquet(trace: Trace, file: BinaryIO) -> None:
    pa.parquet.write_table(_table(trace, "arrival_ns"), file)


def _azure(trace: Trace, file: BinaryIO) -> None:
    # Seven digits as in the original; nine where times are finer than its 100 ns.
    digits = 9 if np.any(trace.arrival_ns % 100) else 7
    at = pa.array(trace.arrival_ns + AZURE_START_NS)
    table = pa.table([at, trace.prompt_tokens, trace.output_tokens], names=["at", "prompt", "output"])

    def line(columns: list[pa.Array]) -> pa.Array:
        stamp = pc.strftime(columns[0].cast(pa.timestamp("ns")), "%Y-%m-%d %H:%M:%S")
        stamp = pc.utf8_slice_codeunits(stamp, 0, 20 + digits)
        return pc.binary_join_element_wise(stamp, *map(_text, columns[1:]), ",")

    file.write(b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
    _lines(file, table, line, b"\r\n")


def _vidur(trace: Trace, file: BinaryIO) -> None:
    prompt, output = trace.prompt_tokens, trace.output_tokens
    if trace.timed:
        table = pa.table([pa.array(trace.arrival_ns), prompt, output], names=["at", "prompt", "output"])
        file.write(b"arrived_at,num_prefill_tokens,num_decode_tokens\n")
        _lines(
            file, table, lambda c: pc.binary_join_element_wise(_seconds(c[0]), *map(_text, c[1:]), ","), b"\n"
        )
    else:
        columns = [prompt, output, prompt + output, prompt / output]
        table = pa.table(columns, names=["prompt", "output", "total", "ratio"])
        file.write(b"num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n")
        _lines(file, table, lambda c: pc.binary_join_element_wise(*map(_text, c), ","), b"\n")


def _mooncake(trace: Trace, file: BinaryIO) -> None:
    ms = (trace.arrival_ns + 500_000) // 10**6
    blocks = -(-trace.prompt_tokens // BLOCK_TOKENS)
    table = pa.table(
        [ms, trace.prompt_tokens, trace.output_tokens, np.cumsum(blocks) - blocks, blocks],
        names=["timestamp", "input_length", "output_length", "first", "blocks"],
    )

    def line(columns: list[pa.Array]) -> pa.Array:
        keyed = [
            pc.binary_join_element_wise(f'"{name}": ', _text(cells), "")
            for name, cells in zip(table.column_names[:3], columns[:3], strict=True)
        ]
        hashes = pc.binary_join_element_wise('"hash_ids": [', _hashes(columns[3], columns[4]), "]", "")
        return pc.binary_join_element_wise("{", pc.binary_join_element_wise(*keyed, hashes, ", "), "}", "")

    _lines(file, table, line, b"\n")


def _hashes(first: pa.Array, blocks: pa.Array) -> pa.Array:
    """``5, 6, 7`` for a row whose three blocks are numbered from 5."""
    ends: Ints = np.cumsum(blocks.to_numpy())
    start = first[0].as_py()
    numbers = pa.array(np.arange(start, start + int(ends[-1]))).cast(pa.string())
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), ", ")


PLAIN: dict[str, Callable[[Trace, BinaryIO], None]] = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}
"""The project's own format in three kinds of file."""
TARGETS = PLAIN | {"azure": _azure, "mooncake": _mooncake, "vidur": _vidur}
"""Writers by the name that ``--to`` takes."""
