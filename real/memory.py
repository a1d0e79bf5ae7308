"""Telling that memory ran out from everything else that can go wrong."""

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had, on a GPU or on a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # A CPU allocation that fails, and a CUDA library that cannot get its workspace, are plain runtime errors.
    text = str(error)
    signs = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED", "not enough memory")
    return isinstance(error, RuntimeError) and any(sign in text for sign in signs)
