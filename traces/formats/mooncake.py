"""Mooncake: whole milliseconds from the start, lengths in tokens, hashes of blocks of 512 prompt tokens (not kept).

Arrivals of the conversation trace come in bursts every three seconds: ties are many and keep file order.
"""

from traces.layout import Layout

LAYOUTS = (Layout(("jsonl",), "input_length", "output_length", "timestamp", "ms", also=("hash_ids",)),)
BLOCK_TOKENS = 512
