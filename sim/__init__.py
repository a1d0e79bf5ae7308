"""How a static batcher serves a trace: policies, cost models, the SimPy server, record, metrics and waste.

Nothing here imports torch: planning works on a laptop with neither torch nor a GPU.
"""
