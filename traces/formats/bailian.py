"""Qwen-Bailian usage traces: like Mooncake's, but in float seconds and blocks of 16, told apart by ``chat_id``."""

from traces.layout import Layout

LAYOUTS = (Layout(("jsonl",), "input_length", "output_length", "timestamp", "s", also=("chat_id",)),)
