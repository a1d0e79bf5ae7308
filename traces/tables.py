"""How numbers and tables look in a terminal: shared by every command that prints.

Cells hold ASCII only, so that any terminal can show them; text from outside (file names, models) goes in as
``Text``, which has no markup to misread; number columns never wrap and never lose a digit.
"""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Cell = str | Text
LEAST_COLUMNS = 80
"""What every table of numbers fits into with its words folded; a narrower terminal gets this width all the same."""


def table(title: str, *columns: str, left: int = 1) -> Table:
    """A table whose first ``left`` columns hold words, the others numbers; no header where all names are empty."""
    result = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_header=any(columns),
    )
    for i, column in enumerate(columns):
        words = i < left
        result.add_column(
            Text(column), justify="left" if words else "right", no_wrap=not words, overflow="fold"
        )
    return result


def add(to: Table, *cells: Cell | None, style: str | None = None) -> None:
    """A row of plain cells; None is shown as a dash."""
    to.add_row(
        *(cell if isinstance(cell, Text) else Text("-" if cell is None else cell) for cell in cells),
        style=style,
    )


def show(console: Console, shown: Table) -> None:
    """Print a table; where the terminal is too narrow for its numbers, over the edge rather than cut."""
    before = console.width
    if any(column.no_wrap for column in shown.columns):
        natural = Measurement.get(console, console.options.update(max_width=10_000), shown).maximum
        console.width = max(before, min(natural, LEAST_COLUMNS))
    console.print(shown)
    console.width = before


def seconds(value: float | None) -> str:
    """A duration with four significant digits and its unit."""
    if value is None:
        return "-"
    size = abs(value)
    if size == 0:
        return "0 s"
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if size < limit:
            return f"{value * scale:.4g} {unit}"
    # From 9999.5 on four digits would be written as a power of ten.
    return f"{value:.4g} s" if size < 9999.5 else f"{value:,.0f} s"


def percent(fraction: float | None, signed: bool = False) -> str:
    """A fraction as a percentage with one decimal; None is ``n/a``."""
    if fraction is None:
        return "n/a"
    return f"{100 * fraction:+.1f} %" if signed else f"{100 * fraction:.1f} %"


def count(value: int | float | None) -> str:
    """A count with thousands apart, or a rate with four significant digits."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def gigabytes(value: float | None) -> str:
    """Bytes in a fitting decimal unit."""
    if value is None:
        return "-"
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{value / limit:.4g} {unit}"
    return f"{value:.0f} B"


def bar(fraction: float, width: int = 24) -> Text:
    """A fraction as a bar."""
    filled = round(max(0.0, min(1.0, fraction)) * width)
    return Text("#" * filled, style="cyan") + Text("." * (width - filled), style="dim")


def slot_bar(useful: Sequence[int], longest: int, width: int = 40) -> list[Text]:
    """One bar a row of a batch: useful slots full, wasted ones dotted, scaled to ``longest`` slots."""
    scale = min(1.0, width / longest)
    bars = []
    for tokens in useful:
        filled = max(1, round(tokens * scale))
        bars.append(
            Text("#" * filled, style="green")
            + Text("." * (max(1, round(longest * scale)) - filled), style="red")
        )
    return bars
