"""BurstGPT 1 to 3: whole seconds from local midnight; release 3 inserts columns, so they go by name.

A response of 0 tokens is a failed request: dropped and counted. The last layout is a converted head of release 3.
"""

from traces.layout import Layout

FAILED = "failed request (no response)"
LAYOUTS = (
    Layout(("csv",), "Request tokens", "Response tokens", "Timestamp", failed=FAILED),
    Layout(("csv",), "request_tokens", "response_tokens", "arrival_s", failed=FAILED),
)
