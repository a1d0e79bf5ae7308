"""Any CSV, JSON Lines or Parquet file by naming its columns: ``arrival_s=ts:ms,prompt_tokens=in,output_tokens=out``."""

from traces.errors import InputError, choices
from traces.layout import ROLES, Layout
from traces.numbers import UNITS


def parse_map(text: str) -> Layout:
    """The layout that a map describes.

    Each piece is ``ROLE=COLUMN``, the arrival's also ``arrival_s=COLUMN:UNIT`` with a unit of
    :data:`traces.numbers.UNITS` (seconds where none is named). Without an arrival the file is offline work.

    Raises:
        InputError: an unknown role or unit, a role twice, or no column for a length.
    """
    columns: dict[str, str] = {}
    for piece in text.split(","):
        role, equals, column = piece.strip().partition("=")
        if not equals or not column:
            raise InputError(f"--map: {piece!r} is not ROLE=COLUMN, such as prompt_tokens=in")
        if role not in ROLES:
            raise InputError(f"--map: role {role!r} is not known; choose {choices(ROLES)}")
        if role in columns:
            raise InputError(f"--map: {role} is given twice")
        columns[role] = column
    for role in ROLES[1:]:
        if role not in columns:
            raise InputError(f"--map: no column for {role} in {text!r}")
    arrival, unit = columns.get("arrival_s"), "s"
    if arrival is not None and ":" in arrival:
        arrival, _, unit = arrival.rpartition(":")
        if unit not in UNITS:
            raise InputError(f"--map: unit {unit!r} of {arrival} is not known; choose {choices(UNITS)}")
    return Layout(
        ("csv", "jsonl", "parquet"), columns["prompt_tokens"], columns["output_tokens"], arrival, unit
    )
