"""What vLLM's serving benchmark leaves (detailed result files) and what it takes (custom JSON Lines of text).

A result file lists every request; one without output tokens failed, and is dropped and counted. ``start_times``
are seconds of a clock of their own, and absent from older files: those are offline work.
"""

from typing import Any

from traces.layout import Columns, Layout

FAILED = "failed request (no output)"


def _results(document: Any, *wanted: str) -> Columns | None:
    if not isinstance(document, dict):
        return None
    columns = {name: document.get(name) for name in wanted}
    lists = {name: column for name, column in columns.items() if isinstance(column, list)}
    same_length = len({len(column) for column in lists.values()}) == 1
    return (lists, {}) if len(lists) == len(wanted) and same_length else None


def _timed(document: Any) -> Columns | None:
    return _results(document, "start_times", "input_lens", "output_lens")


def _untimed(document: Any) -> Columns | None:
    return _results(document, "input_lens", "output_lens")


LAYOUTS = (
    Layout(("json",), "input_lens", "output_lens", "start_times", failed=FAILED, document=_timed),
    Layout(("json",), "input_lens", "output_lens", failed=FAILED, document=_untimed),
    Layout(("jsonl",), "prompt", "output_tokens", text=("prompt",)),
)
