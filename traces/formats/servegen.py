"""ServeGen's offline batch jobs: no arrival times, ``request_id`` is the order of submission.

ServeGen's other files are models of one client each, not requests; they are not read.
"""

from traces.layout import Layout

LAYOUTS = tuple(
    Layout(("csv", "jsonl"), "input_length", "output_length", also=("request_id", duration))
    for duration in ("duration", "duration_ms")
)
