"""How numbers and tables look."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from traces.tables import add, bar, count, gigabytes, percent, seconds, show, slot_bar, table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (3e-9, "3 ns"),
        (1.5e-6, "1.5 us"),
        (0.0123456, "12.35 ms"),
        (1.0, "1 s"),
        (12.345678, "12.35 s"),
        (9999.4, "9999 s"),
        (9999.9, "10,000 s"),
        (123456.7, "123,457 s"),
        (-0.002, "-2 ms"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


@given(st.floats(1e-9, 1e12))
def test_a_duration_is_never_a_power_of_ten_and_true_to_four_digits(value: float) -> None:
    text = seconds(value)
    assert "e" not in text
    number, unit = text.replace(",", "").split()
    scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    assert float(number) * scale == pytest.approx(value, rel=5.01e-4)


def test_counts_rates_shares_and_bytes() -> None:
    assert [count(v) for v in (None, 0, 1234567, 0.5, 999.95, 1234.56)] == [
        "-",
        "0",
        "1,234,567",
        "0.5",
        "1000",
        "1,234.6",
    ]
    assert [percent(v) for v in (None, 0.0, 0.4583, 1.0)] == ["n/a", "0.0 %", "45.8 %", "100.0 %"]
    assert percent(0.5, signed=True) == "+50.0 %"
    assert [gigabytes(v) for v in (None, 12.0, 1e3, 22_937_600, 5e12)] == [
        "-",
        "12 B",
        "1 kB",
        "22.94 MB",
        "5 TB",
    ]


def test_bars_are_as_long_as_their_share() -> None:
    assert [bar(share, 4).plain for share in (0, 0.5, 1, 7, -1)] == ["....", "##..", "####", "####", "...."]
    assert [line.plain for line in slot_bar([10, 30, 5], 30, width=6)] == ["##....", "######", "#....."]


def test_a_narrow_terminal_folds_words_but_never_cuts_a_number() -> None:
    numbers, words = table("", "phase", *["slots"] * 5), table("", "name", left=1)
    add(numbers, "prefill", *["1,234,567 ms"] * 5)
    add(words, "word " * 20)
    console = Console(file=io.StringIO(), width=40)
    for shown in (numbers, words):
        show(console, shown)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("1,234,567 ms") == 5
    assert text.count("word") == 20
    assert all(len(line) <= 40 for line in text.splitlines() if "word" in line)
    assert console.width == 40


def test_a_table_is_this_text() -> None:
    t = table("Waste [of] x", "phase", "slots")
    add(t, "prefill [/padding]", count(1234567))
    add(t, None, "-")
    console = Console(file=io.StringIO(), width=40)
    console.print(t)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert [line for line in lines if line.strip("\N{BOX DRAWINGS LIGHT HORIZONTAL} ")] == [
        "Waste [of] x",
        " phase                   slots",
        " prefill [/padding]  1,234,567",
        " -                           -",
    ]
