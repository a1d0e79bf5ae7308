"""Columns of a source made into exact integers: tokens, and times in nanoseconds.

Nothing goes through float64 seconds: at today's Unix time those resolve only 0.24 us. Decimal text is cast
to Arrow decimals, whose unscaled integer at 9 digits *is* the nanoseconds; timestamps are integer ticks.
What a column cannot give is marked, never guessed: there is no silent 0.
"""

import re
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traces.trace import Ints

Bools = NDArray[np.bool_]

DIGITS = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Units of a time given as a number, each with the decimals that make it whole nanoseconds."""
UNITS = (*DIGITS, "iso")
"""Every unit a time can have; ``iso`` is text such as ``2024-05-10 00:00:00.009930+00:00``, UTC unless it
says."""
MAX_TOKENS = 2**31 - 1
"""Above this a length is a mistake, not a request."""

_WHOLE = re.compile(r"[+-]?[0-9]+(?:\.0*)?")
_INT64 = np.iinfo(np.int64)
_WIDE = 38
"""Fraction digits kept before rounding to nanoseconds: a float printed in full has fewer, but for tiny
ones."""


def tokens(column: pa.Array) -> tuple[Ints, Bools]:
    """Token counts of a column of text, integers, decimals or floats.

    Returns:
        The counts, and which of them are usable: whole numbers from 1 to :data:`MAX_TOKENS`. A row that is
        not even a whole number has count -1; zero and negative ones keep their value.
    """
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        values = _whole_text(column)
    elif pa.types.is_floating(column.type):
        floats = _filled(column, np.nan).astype(np.float64)
        with np.errstate(invalid="ignore"):
            whole = (np.rint(floats) == floats) & (np.abs(floats) <= MAX_TOKENS)
        values = np.where(whole, floats, -1).astype(np.int64)
    elif pa.types.is_integer(column.type):
        values = _filled(pc.cast(column, pa.int64(), safe=False), -1)
    elif pa.types.is_decimal(column.type):
        whole = pc.equal(pc.floor(column), column)
        inside = pc.and_(whole, pc.less_equal(pc.abs(column), pa.scalar(MAX_TOKENS)))
        kept = pc.if_else(pc.fill_null(inside, False), column, pa.scalar(None, column.type))
        values = _filled(pc.cast(kept, pa.int64()), -1)
    else:
        values = np.full(len(column), -1, np.int64)
    return values, (values >= 1) & (values <= MAX_TOKENS)


def nanoseconds(column: pa.Array, unit: str) -> tuple[Ints, Bools]:
    """Times of a column in ``unit`` (one of :data:`UNITS`) as integer nanoseconds of the source's own clock.

    Text and decimals are exact up to half a nanosecond (rounded half to even); binary floats are as exact as
    they are. Returns the times and which of them are usable; the rest are 0 and must not be read.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        try:
            ticks = pc.cast(column, pa.timestamp("ns", kind.tz)).cast(pa.int64())
        except pa.ArrowInvalid:
            return np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
        return _filled(ticks, 0), _valid(column)
    if unit == "iso":
        return _iso(column)
    digits = DIGITS[unit]
    if pa.types.is_integer(kind):
        column, kind = pc.cast(column, pa.decimal128(38, 0)), pa.decimal128(38, 0)
    if pa.types.is_floating(kind):
        return _float_times(_filled(column, np.nan).astype(np.float64), digits)
    if pa.types.is_decimal(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        for exact in (_narrow, _wide):
            try:
                return _unscaled(exact(column, digits))
            except pa.ArrowInvalid:
                continue
        return _slow_times(column, digits)
    return np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)


def in_plain_digits(value: Any) -> str:
    """A cell as it stood in the file: Arrow hands numbers of JSON on as decimals of fixed scale, 0 as 0E-18."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return str(value)
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def why(value: Any, role: str) -> str:
    """Why one cell is unusable as ``role`` (``arrival`` or a token count): the reason of a drop or an
    error."""
    if value is None or str(value).strip() == "":
        return "missing"
    number = _decimal(str(value))
    if number is None:
        return "not a time" if role == "arrival" else "not a number"
    if role == "arrival":
        return "out of range"
    if number.copy_abs() > MAX_TOKENS:
        return "too large"
    if number <= 0:
        return "zero" if number == 0 else "negative"
    return "not whole" if number != number.to_integral_value() else "not in plain digits"


def _whole_text(column: pa.Array) -> Ints:
    # Arrow alone would take 0x1F for 31, so only plain digits go the fast way.
    if column.null_count == 0 and pc.all(pc.ascii_is_decimal(column)).as_py() is not False:
        try:
            values: Ints = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
            return values
        except pa.ArrowInvalid:
            pass
    return np.fromiter((_whole(text) for text in column.to_pylist()), np.int64, len(column))


def _whole(text: str | None) -> int:
    text = (text or "").strip()
    if not _WHOLE.fullmatch(text) or len(text) > 100:
        return -1
    return max(min(int(text.partition(".")[0]), _INT64.max), _INT64.min)


def _iso(column: pa.Array) -> tuple[Ints, Bools]:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_)
    for zone in (None, "UTC"):
        try:
            ticks = pc.cast(column, pa.timestamp("ns", zone)).cast(pa.int64())
            return _filled(ticks, 0), _valid(column)
        except pa.ArrowInvalid:
            continue
    times = np.zeros(len(column), np.int64)
    usable = np.zeros(len(column), np.bool_)
    for i, text in enumerate(column.to_pylist()):
        for zone in (None, "UTC"):
            try:
                cell = pa.array([(text or "").strip()]).cast(pa.timestamp("ns", zone))
                times[i], usable[i] = cell.cast(pa.int64())[0].as_py(), True
                break
            except pa.ArrowInvalid:
                continue
    return times, usable


def _narrow(column: pa.Array, digits: int) -> pa.Array:
    return pc.cast(column, pa.decimal128(38, digits))


def _wide(column: pa.Array, digits: int) -> pa.Array:
    wide = pc.cast(column, pa.decimal256(76, _WIDE))
    return pc.cast(pc.round(wide, digits, "half_to_even"), pa.decimal128(38, digits))


def _unscaled(column: pa.Array) -> tuple[Ints, Bools]:
    """The unscaled integers of a decimal128 column: its buffer is pairs of 64-bit words, the low one
    first."""
    words = np.frombuffer(column.buffers()[1], "<i8")
    words = words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    fits = (high == low >> 63) & _valid(column)
    return np.where(fits, low, 0), fits


def _float_times(values: NDArray[np.float64], digits: int) -> tuple[Ints, Bools]:
    # Whole units and the fraction apart: their product with 10**digits would round at 2**53.
    usable = np.isfinite(values) & (np.abs(values) < 2.0**63 / 10**digits)
    finite = np.where(usable, values, 0.0)
    whole = np.floor(finite)
    return whole.astype(np.int64) * 10**digits + np.rint((finite - whole) * 10**digits).astype(
        np.int64
    ), usable


def _slow_times(column: pa.Array, digits: int) -> tuple[Ints, Bools]:
    """Cell by cell, for the rare block with a cell that Arrow refuses."""
    times = np.zeros(len(column), np.int64)
    usable = np.zeros(len(column), np.bool_)
    for i, cell in enumerate(column.to_pylist()):
        number = _decimal(str(cell)) if cell is not None else None
        if number is None or number.adjusted() > 30:
            continue
        with localcontext(prec=60):
            ticks = int(number.scaleb(digits).to_integral_value()) if number.adjusted() > -60 else 0
        if _INT64.min <= ticks <= _INT64.max:
            times[i], usable[i] = ticks, True
    return times, usable


def _decimal(text: str) -> Decimal | None:
    """A finite number written the ordinary way, or None."""
    if "_" in text or len(text) > 1000 or not text.isascii():
        return None
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _filled(column: pa.Array, value: Any) -> Any:
    return pc.fill_null(column, value).to_numpy(zero_copy_only=False)


def _valid(column: pa.Array) -> Bools:
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid
