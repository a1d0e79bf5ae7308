"""APEX+: nanoseconds from the start of the trace; the original's JSON rows and the same columns as CSV."""

from traces.layout import Layout

LAYOUTS = (
    Layout(("jsonl",), "ContextTokens", "GeneratedTokens", "StartTimeOffset", "ns"),
    Layout(("csv",), "context_tokens", "generated_tokens", "start_time_offset_ns", "ns"),
)
