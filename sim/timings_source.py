"""Where measured times come from on the command line: a profile, a measured record, or a table by its columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from sim import store
from sim.measured_table import parse_map, read_table
from sim.profile import CONDITIONS, METADATA_KEY, Profile
from sim.recorded import recorded_passes
from sim.timings import Timings, of_profile
from traces.errors import InputError, choices

Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="ROLE=COLUMN,...",
        help="Columns of a table, such as rows=Batch Size,prompt_tokens=In,output_tokens=Out,seconds=Latency:ms. "
        "Times: seconds (of a whole batch; without output_tokens of a prefill, with context_tokens of a decode step), "
        "prefill_seconds, decode_seconds; also model, hardware, dtype.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", metavar="COLUMN=VALUE", help="Rows of a table to keep; again for more, same column: or."
    ),
]
About = Annotated[
    list[str] | None,
    typer.Option(
        "--about",
        metavar="KEY=VALUE",
        help=f"What a table does not say of its measurement: {', '.join(CONDITIONS)}. Again for more.",
    ),
]


@dataclass(frozen=True)
class Measured:
    """Measured times, and their passes where the source has passes."""

    timings: Timings
    profile: Profile | None


def read(path: Path, mapped: str | None, where: Sequence[str], about: Sequence[str]) -> Measured:
    """The times that a path and its options name.

    Raises:
        InputError: nothing there, options that do not go with it, or unusable times; one line with the place.
    """
    stated = _about(about)
    is_profile = path.is_dir() or _is_profile(path)
    for option, given in (("--map", mapped), ("--where", where), ("--about", about)):
        if given and is_profile:
            raise InputError(f"{option}: {path} is no table; it says itself what it holds")
    if is_profile:
        profile = _passes(path)
        return Measured(of_profile(profile, path.name), profile)
    if mapped is None:
        if not path.exists():
            raise InputError(f"{path}: no such file; give a profile, a record or a table with --map")
        raise InputError(f"{path}: neither a profile nor a record; for a table, name its columns by --map")
    return Measured(read_table(path, parse_map(mapped), where, stated), None)


def _passes(path: Path) -> Profile:
    if not path.is_dir():
        return Profile.load(path)
    record = store.load(path)
    try:
        return recorded_passes(record)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _is_profile(path: Path) -> bool:
    """Whether a file is Parquet with a profile's metadata."""
    try:
        return METADATA_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def _about(about: Sequence[str]) -> dict[str, str]:
    stated = {}
    for text in about:
        key, equals, value = text.partition("=")
        if not equals or not value or key not in CONDITIONS:
            raise InputError(f"--about {text!r} is not KEY=VALUE with one of {choices(CONDITIONS)}")
        stated[key] = value
    return stated
