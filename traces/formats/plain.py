"""The project's own: an arrival in any unit and two lengths, as CSV, JSON Lines or Parquet.

``source_row`` and ``predicted_output_tokens`` are kept where they are there. Without an arrival: offline
work.
"""

from traces.layout import Layout
from traces.numbers import DIGITS

FILES = ("csv", "jsonl", "parquet")
KEPT = ("source_row", "predicted_output_tokens")


def _layout(arrival: str | None, unit: str) -> Layout:
    return Layout(FILES, "prompt_tokens", "output_tokens", arrival, unit, optional=KEPT)


LAYOUTS = (*(_layout(f"arrival_{unit}", unit) for unit in DIGITS), _layout(None, "s"))
