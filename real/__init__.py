"""The same schedule on the real model: the Qwen3 engine, its executor and its profiler."""
