"""Records on disk: a folder with Parquet for the columns and JSON for the set-up.

``requests.parquet`` has one row a request of the trace, ``batches.parquet`` one a batch, ``steps.parquet`` (measured
runs only) one a forward pass. Saving what was loaded gives the same bytes.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.record import CLOSED_BY, STATUSES, Batches, Measured, Requests, Rows, RunRecord, broken_laws
from traces.errors import InputError
from traces.trace import Ints

FORMAT = "static-batching record 1"
SETUP, REQUESTS, BATCHES, STEPS = "setup.json", "requests.parquet", "batches.parquet", "steps.parquet"


def save(record: RunRecord, folder: Path) -> None:
    """Write a record whole or not at all; an older record in the folder is replaced, anything else refused."""
    folder = Path(folder)
    check_folder(folder)
    folder = folder.resolve()
    part, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{word}") for word in ("part", "old"))
    try:
        part.mkdir(parents=True)
        _write(record, part)
        if folder.exists():
            folder.rename(old)
        try:
            part.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(folder)) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_folder(folder: Path) -> None:
    """Refuse a folder that :func:`save` would refuse, so that a long run need not end in it."""
    if folder.exists():
        if not _may_replace(folder):
            raise InputError(f"{folder}: exists and is not a record; name a new or empty folder")
        return
    above = next(parent for parent in folder.resolve().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise InputError(f"{folder}: cannot be made in {str(above)!r}; name a folder that can")


def _may_replace(folder: Path) -> bool:
    """Whether a folder is empty, or a record and nothing but a record."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    if SETUP not in names or names - {SETUP, REQUESTS, BATCHES, STEPS}:
        return False
    try:
        document = json.loads((folder / SETUP).read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT


def _write(record: RunRecord, folder: Path) -> None:
    b, measured = record.batches, record.measured
    document: dict[str, Any] = {"format": FORMAT, "setup": dict(record.setup)}
    if measured is not None:
        document["failed"] = {str(batch): why for batch, why in measured.failed.items()}
    text = json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"
    (folder / SETUP).write_text(text, encoding="utf-8")
    _write_table(folder / REQUESTS, _request_columns(record))
    batches: dict[str, Any] = {name: column for name, column in vars(b).items() if name != "first_row"}
    batches = {"rows": record.batch_rows, **batches, "closed_by": _names(b.closed_by, CLOSED_BY)}
    if measured is not None:
        batches["passes"] = np.diff(measured.first_step, append=len(measured.step_wall_ns))
        if measured.peak_memory_bytes is not None:
            batches["peak_memory_bytes"] = measured.peak_memory_bytes
        steps = {"wall_ns": measured.step_wall_ns, "cpu_ns": measured.step_cpu_ns}
        _write_table(folder / STEPS, {name: column for name, column in steps.items() if column is not None})
    _write_table(folder / BATCHES, batches)


def _request_columns(record: RunRecord) -> dict[str, Any]:
    """Requests in the trace's order; what did not happen to one is null."""
    r, request = record.requests, record.rows.request
    unserved = np.full(len(r.status), True)
    unserved[request] = False

    def at_requests(row_column: Ints) -> pa.Array:
        column = np.zeros(len(r.status), np.int64)
        column[request] = row_column
        return pa.array(column, mask=unserved)

    return {
        "arrival_ns": r.arrival_ns,
        "prompt_tokens": r.prompt_tokens,
        "output_tokens": r.output_tokens,
        "source_row": r.source_row,
        "status": _names(r.status, STATUSES),
        "batch": at_requests(record.spread(np.arange(len(record.batch_rows)))),
        "start_ns": at_requests(record.spread(record.batches.start_ns)),
        "first_token_ns": at_requests(record.spread(record.prefill_end_ns)),
        "last_token_ns": at_requests(record.rows.last_token_ns),
        "returned_ns": at_requests(record.spread(record.end_ns)),
    }


def _names(index: Ints, names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(index.astype(np.int8), list(names))


def _write_table(path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), path, compression="zstd")


def load(folder: Path) -> RunRecord:
    """Read a record. What is missing, damaged or contradicts itself is an :class:`InputError`."""
    folder = Path(folder)
    if not (folder / SETUP).is_file():
        raise InputError(f"{folder}: not a record (no {SETUP} in it)")
    try:
        document = json.loads((folder / SETUP).read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f"{SETUP} is not of the format {FORMAT!r}")
        if not isinstance(document.get("setup"), dict):
            raise InputError(f"{SETUP} holds no set-up")
        record = _read(document, folder)
    except InputError as error:
        raise InputError(f"{folder}: damaged record: {error}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, pa.ArrowException, OSError) as error:
        raise InputError(f"{folder}: damaged record: {' '.join(str(error).split())}") from error
    broken = broken_laws(record)
    if broken:
        raise InputError(f"{folder}: the record contradicts itself: {'; '.join(broken)}")
    return record


def _read(document: dict[str, Any], folder: Path) -> RunRecord:
    r, b = pq.read_table(folder / REQUESTS), pq.read_table(folder / BATCHES)
    rows = _ints(b, "rows")
    first_row = np.cumsum(rows) - rows
    served = r.column("batch").is_valid().to_numpy()
    index = np.flatnonzero(served)
    batch, last_token_ns = (
        _whole(r.column(name).filter(served), name) for name in ("batch", "last_token_ns")
    )
    order = np.argsort(batch, kind="stable")
    known = bool(np.all((batch >= 0) & (batch < len(rows))))
    if not known or not np.array_equal(np.bincount(batch, minlength=len(rows)), rows):
        raise InputError(f"{REQUESTS} and {BATCHES} disagree on who was in which batch")
    names = ("server", "start_ns", "lag_ns", "before_ns", "prefill_ns", "decode_ns", "after_ns", "dummy_rows")
    columns = {name: _ints(b, name) for name in names}
    if (folder / STEPS).is_file() != ("passes" in b.column_names):
        raise InputError(f"{BATCHES} and the presence of {STEPS} disagree on whether this run was measured")
    record = RunRecord(
        setup=document["setup"],
        requests=Requests(
            arrival_ns=_ints(r, "arrival_ns"),
            prompt_tokens=_ints(r, "prompt_tokens"),
            output_tokens=_ints(r, "output_tokens"),
            source_row=_ints(r, "source_row"),
            status=_indices(r, "status", STATUSES),
        ),
        rows=Rows(request=index[order], last_token_ns=last_token_ns[order]),
        batches=Batches(first_row=first_row, closed_by=_indices(b, "closed_by", CLOSED_BY), **columns),
        measured=_read_measured(document, folder, b) if (folder / STEPS).is_file() else None,
    )
    derived = _request_columns(record)
    for name in ("start_ns", "first_token_ns", "returned_ns"):
        if not r.column(name).combine_chunks().equals(derived[name]):
            raise InputError(f"{name} of {REQUESTS} is not what {BATCHES} says")
    return record


def _read_measured(document: dict[str, Any], folder: Path, batches: pa.Table) -> Measured:
    steps = pq.read_table(folder / STEPS)
    passes = _ints(batches, "passes")
    if passes.min(initial=0) < 0 or passes.sum() != len(steps):
        raise InputError(f"{STEPS} has {len(steps)} passes, {BATCHES} counts {passes.sum()}")
    return Measured(
        first_step=np.cumsum(passes) - passes,
        step_wall_ns=_ints(steps, "wall_ns"),
        step_cpu_ns=_ints(steps, "cpu_ns") if "cpu_ns" in steps.column_names else None,
        peak_memory_bytes=(
            _ints(batches, "peak_memory_bytes") if "peak_memory_bytes" in batches.column_names else None
        ),
        failed=_read_failed(document["failed"], len(passes)),
    )


def _read_failed(failed: dict[str, str], batches: int) -> dict[int, str]:
    found = {int(batch): str(why) for batch, why in failed.items()}
    unknown = [batch for batch in found if not 0 <= batch < batches]
    if unknown:
        raise InputError(f"{SETUP} says that batch {unknown[0]} failed, of {batches} batches")
    return found


def _ints(table: pa.Table, name: str) -> Ints:
    return _whole(table.column(name), name)


def _whole(column: pa.ChunkedArray, name: str) -> Ints:
    if column.null_count:
        raise InputError(f"column {name} has {column.null_count} nulls")
    if not pa.types.is_integer(column.type):
        raise InputError(f"column {name} holds {column.type}, not whole numbers")
    return column.to_numpy().astype(np.int64, copy=False)  # type: ignore[no-any-return]


def _indices(table: pa.Table, name: str, names: tuple[str, ...]) -> Ints:
    values = pa.chunked_array(table.column(name)).cast(pa.string()).combine_chunks()
    index = pa.compute.index_in(values, value_set=pa.array(names))
    if index.null_count:
        raise InputError(f"column {name} has an unknown value; known are {', '.join(names)}")
    return index.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
