"""Vidur and Sarathi-Serve: seconds from the first row, or no arrival times at all (``num_total_tokens`` follows)."""

from traces.layout import Layout

LAYOUTS = (
    Layout(("csv",), "num_prefill_tokens", "num_decode_tokens", "arrived_at"),
    Layout(("csv",), "num_prefill_tokens", "num_decode_tokens"),
)
