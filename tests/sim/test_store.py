"""Records on disk: the same bytes again, and one line for whatever is damaged, missing or contradicts itself."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from sim.record import broken_laws
from sim.store import BATCHES, REQUESTS, SETUP, check_folder, load, save
from tests.sim.worked import AFFINE, ANY_POLICY, MS, Case, run, trace_of
from traces.errors import InputError

TRACE = trace_of([0, 0, 5 * MS, 9 * MS, 400 * MS], [3, 2, 4, 90, 2], [2, 5, 3, 1, 4])


def saved(folder: Path) -> Path:
    save(run(TRACE, 2, 10 * MS, AFFINE, max_kv_tokens=40), folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_POLICY)
def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path: Path, case: Case) -> None:
    record = case.record()
    save(record, tmp_path / "a")
    again = load(tmp_path / "a")
    save(again, tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    for part in ("requests", "rows", "batches"):
        for name, column in vars(getattr(record, part)).items():
            assert np.array_equal(column, getattr(getattr(again, part), name)), name
    assert dict(again.setup) == dict(record.setup)


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        load(folder)
    line = str(error.value)
    assert "\n" not in line
    assert str(folder) in line
    return line


def test_a_folder_that_is_none_or_no_record(tmp_path: Path) -> None:
    assert "not a record" in refused(tmp_path / "absent")
    assert "not a record" in refused(tmp_path)
    (tmp_path / "file").write_text("x")
    assert "not a record" in refused(tmp_path / "file")


@pytest.mark.parametrize("name", [SETUP, REQUESTS, BATCHES])
@pytest.mark.parametrize("damage", ["absent", "empty", "binary", "cut short"])
def test_a_damaged_or_missing_file_is_one_line(name: str, damage: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "r") / name
    if damage == "absent":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes(
            {"empty": b"", "binary": b"\xff\x00" * 99, "cut short": whole[: len(whole) // 2]}[damage]
        )
    refused(tmp_path / "r")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"format": "other"}',
        '{"format": "static-batching record 1"}',
        '{"format": "static-batching record 1", "setup": []}',
        '{"format": "static-batching record 1", "setup": 3}',
    ],
)
def test_a_setup_that_is_none(text: str, tmp_path: Path) -> None:
    (saved(tmp_path / "r") / SETUP).write_text(text)
    refused(tmp_path / "r")


def change(folder: Path, name: str, column: str, make: Callable[[pa.ChunkedArray], Any] | None) -> None:
    """Put something else into a column of a saved table, or take the column away."""
    table = pq.read_table(folder / name)
    i = table.column_names.index(column)
    changed = table.remove_column(i)
    if make is not None:
        changed = changed.add_column(i, column, pa.chunked_array([make(table.column(column))]))
    pq.write_table(changed, folder / name)


def plus(amount: int) -> Callable[[pa.ChunkedArray], Any]:
    return lambda column: pa.array([None if v is None else v + amount for v in column.to_pylist()])


def at(place: int, value: Any) -> Callable[[pa.ChunkedArray], Any]:
    def put(column: pa.ChunkedArray) -> Any:
        values = column.to_pylist()
        values[place] = value
        return pa.array(values)

    return put


@pytest.mark.parametrize(
    ("name", "column", "make"),
    [
        (REQUESTS, "batch", None),
        (REQUESTS, "batch", plus(1)),
        (REQUESTS, "batch", plus(10**15)),
        (REQUESTS, "batch", plus(-5)),
        (REQUESTS, "batch", at(0, 1)),
        (REQUESTS, "status", at(0, "lost")),
        (REQUESTS, "status", at(0, None)),
        (REQUESTS, "status", at(0, "rejected")),
        (REQUESTS, "status", at(3, "completed")),
        (REQUESTS, "arrival_ns", plus(10**12)),
        (REQUESTS, "arrival_ns", at(1, -1)),
        (REQUESTS, "arrival_ns", at(0, None)),
        (REQUESTS, "arrival_ns", lambda column: pa.array(["x"] * len(column))),
        (REQUESTS, "prompt_tokens", lambda column: pa.array([0.5] * len(column))),
        (REQUESTS, "prompt_tokens", at(2, 0)),
        (REQUESTS, "output_tokens", at(2, -7)),
        (REQUESTS, "last_token_ns", plus(10**12)),
        (REQUESTS, "last_token_ns", plus(-(10**12))),
        (REQUESTS, "start_ns", plus(1)),
        (REQUESTS, "first_token_ns", plus(1)),
        (REQUESTS, "returned_ns", plus(1)),
        (BATCHES, "rows", plus(1)),
        (BATCHES, "rows", at(0, 0)),
        (BATCHES, "start_ns", plus(-(10**12))),
        (BATCHES, "decode_ns", plus(10**12)),
        (BATCHES, "decode_ns", plus(-(10**12))),
        (BATCHES, "after_ns", at(0, -1)),
        (BATCHES, "dummy_rows", at(0, -1)),
        (BATCHES, "closed_by", at(0, "whim")),
        (BATCHES, "start_ns", None),
    ],
)
def test_tables_that_contradict_each_other_are_one_line(
    name: str, column: str, make: Any, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "r")
    change(folder, name, column, make)
    refused(folder)


def test_a_batch_of_nobody_is_one_line(tmp_path: Path) -> None:
    folder = saved(tmp_path / "r")
    table = pq.read_table(folder / BATCHES)
    nobody = table.slice(0, 1).set_column(0, "rows", pa.array([0]))
    for tables in ([table, nobody], [nobody, table]):
        pq.write_table(pa.concat_tables(tables), folder / BATCHES)
        refused(folder)


def test_the_laws_of_a_record_name_what_is_broken() -> None:
    record = run(trace_of([0] * 4, 2, 2), 2)
    assert broken_laws(record) == []
    b = record.batches
    overlapping = replace(record, batches=replace(b, start_ns=b.start_ns * 0))
    assert broken_laws(overlapping) == [
        "a batch returns before a last token",
        "batches of one server overlap",
    ]
    twice = replace(record, rows=replace(record.rows, request=np.array([0, 0, 2, 3])))
    assert "a request is in two batches" in broken_laws(twice)
    early = replace(record, requests=replace(record.requests, arrival_ns=record.requests.arrival_ns + 1))
    assert broken_laws(early) == ["a batch starts before a member's arrival"]


def test_a_record_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    record = run(TRACE, 2, 10 * MS, AFFINE)
    save(record, tmp_path / "r")
    other = run(TRACE, 3, 10 * MS, AFFINE)
    save(other, tmp_path / "r")
    assert len(load(tmp_path / "r").batch_rows) == len(other.batch_rows)
    (tmp_path / "empty").mkdir()
    save(record, tmp_path / "empty")
    save(record, tmp_path / "new" / "deep")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new", "r"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["deep"]


@pytest.mark.parametrize("content", ["notes.txt", SETUP, "both"])
def test_a_folder_with_anything_else_in_it_is_left_alone(content: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    if content == "both":
        saved(folder)
        (folder / "notes.txt").write_text("years of work")
    else:
        folder.mkdir()
        (folder / content).write_text('{"tool": "another"}')
    before = files(folder)
    with pytest.raises(InputError, match=r"mine: exists and is not a record"):
        saved(folder)
    assert files(folder) == before
    with pytest.raises(InputError, match="exists and is not a record"):
        saved(folder / (SETUP if content == "both" else content))


def test_the_working_folder_is_no_name_for_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "x").write_text("x")
    monkeypatch.chdir(tmp_path / "work")
    for name in (".", "..", "/"):
        with pytest.raises(InputError, match="exists and is not a record"):
            saved(Path(name))


def test_a_folder_that_cannot_be_made_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"file/record: cannot be made in '.*file'"):
        check_folder(tmp_path / "file" / "record")
    check_folder(tmp_path / "new" / "and" / "deep")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("fails", ["write_table", "second rename"])
def test_a_full_disk_leaves_the_old_record(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "r")
    before = files(folder)

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    if fails == "write_table":
        monkeypatch.setattr(pq, "write_table", full)
    else:
        rename, calls = Path.rename, []

        def second(path: Path, target: Path) -> Path:
            calls.append(path)
            if len(calls) == 2:
                full()
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", second)
    with pytest.raises(OSError, match="No space left") as caught:
        save(run(TRACE, 3, 10 * MS, AFFINE), folder)
    assert caught.value.filename == str(folder)
    assert files(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_an_interrupt_while_saving_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "r")
    before = files(folder)

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saved(folder)
    assert files(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_what_a_record_holds_can_be_read_without_us(tmp_path: Path) -> None:
    folder = saved(tmp_path / "r")
    assert json.loads((folder / SETUP).read_text())["format"] == "static-batching record 1"
    table = pq.read_table(folder / REQUESTS)
    assert table.column("status").to_pylist() == ["completed"] * 3 + ["rejected", "completed"]
    assert table.column("batch").to_pylist() == [0, 0, 1, None, 2]
    assert table.column("returned_ns").null_count == 1
    assert pq.read_table(folder / BATCHES).column("closed_by").to_pylist() == ["full", "timer", "timer"]
