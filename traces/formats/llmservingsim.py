"""LLMServingSim: its workloads (nanoseconds) and the requests its vLLM runs measured (Unix seconds)."""

from traces.layout import Layout

LAYOUTS = (
    Layout(("csv", "jsonl"), "input_toks", "output_toks", "arrival_time_ns", "ns"),
    Layout(("csv", "jsonl"), "input_toks", "output_toks", "arrival_time", "s"),
)
