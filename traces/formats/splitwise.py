"""Splitwise-sim: seconds; ``token_size`` is the output. One row is one request, whatever ``batch_size`` says."""

from traces.layout import Layout

LAYOUTS = (Layout(("csv",), "prompt_size", "token_size", "arrival_timestamp"),)
