"""What hardware can do at best: one row of datasheet facts a device, from ``sim/data/hardware.toml``.

Peaks are dense (without 2:4 sparsity). Memory is the decimal size printed on the datasheet, which is a little less
than the device reports: budgets stay safe. Units and sources stand in the table itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.models import DTYPE_BYTES
from sim.rows import FLAG, NOT_NEGATIVE, POSITIVE, SHARE, WORDS, Kind, built_in, checked, own, own_place
from traces.errors import InputError, choices


@dataclass(frozen=True)
class Efficiency:
    """Share of the datasheet's peak that kernels reach, dimensionless; and where it was measured."""

    gemm_flop: float
    attention_flop: float
    """Of query-key pairs really computed; a masked kernel computes them all."""
    gemm_bytes: float
    attention_bytes: float
    source: str


@dataclass(frozen=True)
class Hardware:
    """Datasheet facts of one device, and where they stand."""

    name: str
    memory_bytes: int | None
    """Device memory; None for a CPU, whose memory the datasheet does not fix."""
    memory_bytes_per_s: float
    flop_per_s: Mapping[str, float]
    """Dense peak by dtype; float32 without TF32, which torch leaves off unless asked."""
    launch_s: float
    """Shortest time of one kernel on the device, seconds; measured, while all else is printed."""
    kernels: Efficiency
    """What kernels reach of the peaks, on this device or on the one that stands in for it."""
    source: str
    asynchronous: bool = True
    """The host queues work ahead of the device (GPU): the slower of the two decides. On a CPU they add up."""

    def to_rows(self) -> dict[str, Any]:
        """The tables that :func:`of_rows` makes this very row from."""
        optional = {} if self.memory_bytes is None else {"memory_bytes": self.memory_bytes}
        reached = {f"{key}_share": share for key, share in vars(self.kernels).items() if key != "source"}
        row = {
            **optional,
            "memory_bytes_per_s": self.memory_bytes_per_s,
            **{f"{dtype}_flop_per_s": flop for dtype, flop in self.flop_per_s.items()},
            "launch_s": self.launch_s,
            "asynchronous": self.asynchronous,
            "kernels": self.name,
            "source": self.source,
        }
        kernels = {**reached, "source": self.kernels.source}
        return {"hardware": {self.name: row}, "kernels": {self.name: kernels}}


KERNELS_KEYS: dict[str, Kind] = {
    "gemm_flop_share": SHARE,
    "attention_flop_share": SHARE,
    "gemm_bytes_share": SHARE,
    "attention_bytes_share": SHARE,
    "source": WORDS,
}
HARDWARE_KEYS: dict[str, Kind] = {"memory_bytes_per_s": POSITIVE, "launch_s": NOT_NEGATIVE, "source": WORDS}
OPTIONAL_KEYS: dict[str, Kind] = {
    "memory_bytes": POSITIVE,
    **{f"{dtype}_flop_per_s": POSITIVE for dtype in DTYPE_BYTES},
    "asynchronous": FLAG,
    "kernels": WORDS,
    "launch_source": WORDS,
}
STAND_IN = "H200"
"""Whose kernels a row without ``kernels`` is taken to reach."""


def _kernels(rows: Mapping[str, Mapping[str, Any]], file: str) -> dict[str, Efficiency]:
    found = {}
    for name, row in rows.items():
        values = checked(row, f"{file}: [kernels.{name}]", KERNELS_KEYS, {})
        found[name] = Efficiency(**{key.removesuffix("_share"): value for key, value in values.items()})
    return found


def _devices(
    rows: Mapping[str, Mapping[str, Any]], kernels: Mapping[str, Efficiency], file: str
) -> dict[str, Hardware]:
    found = {}
    for name, row in rows.items():
        place = f"{file}: [hardware.{name}]"
        values = checked(row, place, HARDWARE_KEYS, OPTIONAL_KEYS)
        flop = {d: float(values[f"{d}_flop_per_s"]) for d in DTYPE_BYTES if f"{d}_flop_per_s" in values}
        if not flop:
            keys = choices(f"{dtype}_flop_per_s" for dtype in DTYPE_BYTES)
            raise InputError(f"{place}: needs at least one key of {keys}")
        reached = values.get("kernels", STAND_IN)
        if reached not in kernels:
            raise InputError(f"{place}: kernels = {reached!r} is no table; known are {choices(kernels)}")
        memory = values.get("memory_bytes")
        found[name] = Hardware(
            name,
            None if memory is None else int(memory),
            float(values["memory_bytes_per_s"]),
            flop,
            float(values["launch_s"]),
            kernels[reached],
            values["source"],
            values.get("asynchronous", True),
        )
    return found


KERNELS: dict[str, Efficiency] = _kernels(built_in("hardware.toml", "kernels"), "hardware.toml")
HARDWARE: dict[str, Hardware] = _devices(built_in("hardware.toml", "hardware"), KERNELS, "hardware.toml")
"""The rows that come with the program."""


def known_hardware() -> dict[str, Hardware]:
    """All rows by name: those of the program, and the user's own (see :mod:`sim.rows`), which take precedence.

    Raises:
        InputError: a row of the user's is wrong.
    """
    file = own_place()
    kernels = KERNELS | _kernels(own("kernels"), file)
    return HARDWARE | _devices(own("hardware"), kernels, file)


def of_rows(tables: Mapping[str, Any], place: str) -> Hardware:
    """The one device of some tables, as :meth:`Hardware.to_rows` wrote them.

    Raises:
        InputError: a row is wrong.
    """
    (row,) = _devices(tables["hardware"], KERNELS | _kernels(tables["kernels"], place), place).values()
    return row


def hardware(name: str) -> Hardware:
    """The row of a device by its name, in any case.

    Raises:
        InputError: there is no such row; the line lists the names.
    """
    rows = known_hardware()
    for row in rows.values():
        if row.name.lower() == name.strip().lower():
            return row
    raise InputError(f"unknown hardware {name!r}; known are {choices(rows)}")


def named_in(text: str) -> Hardware | None:
    """The row whose name, part by part, stands in a device's own name; None if no row does.

    "NVIDIA A100-SXM4-80GB" is the row A100-80GB; of several rows the longest name is the most specific. A part does not
    go on in letters or digits of its own kind: an L40 is no L4.
    """
    rows = known_hardware()
    fits = [name for name in rows if all(_stands_in(part, text.upper()) for part in name.upper().split("-"))]
    return rows[max(fits, key=len)] if fits else None


def _stands_in(part: str, text: str) -> bool:
    before, after = ("[0-9]" if end.isdigit() else "[A-Z]" for end in (part[:1], part[-1:]))
    return re.search(f"(?<!{before}){re.escape(part)}(?!{after})", text) is not None
