"""The formats that are recognised, most particular first. A new one is one file and one line here."""

from traces.formats import azure, plain
from traces.layout import Layout

FORMATS: dict[str, tuple[Layout, ...]] = {
    "azure": azure.LAYOUTS,
    "plain": plain.LAYOUTS,
}
"""Layouts by the name that ``--format`` takes."""
