"""Telling that memory ran out, or is about to, from everything else that can go wrong."""

from pathlib import Path

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had, on a GPU or on a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # A CPU allocation that fails, and a CUDA library that cannot get its workspace, are plain runtime errors.
    text = str(error)
    signs = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED", "not enough memory")
    return isinstance(error, RuntimeError) and any(sign in text for sign in signs)


def available_bytes() -> int | None:
    """Memory of the host that can still be had, where the system says so (Linux); None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    kib = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kib[0]) * 1024 if kib else None


def refuse_beyond_host_memory(rows: int, prompt: int, rows_at_once: int, dtype: torch.dtype) -> None:
    """On a CPU, refuse a prefill whose masks alone exceed the memory there is.

    A system that promises more memory than it has ends the process when the memory is used, where no error can be
    caught and the batches before are lost. Counted are the boolean masks of all rows and the causal one, and the
    copy in ``dtype`` that attention adds to its scores, for the rows of one pass.

    Raises:
        MemoryError: it does not fit.
    """
    needed = prompt * prompt * (rows + 1 + rows_at_once * dtype.itemsize)
    available = available_bytes()
    if available is not None and needed > available:
        raise MemoryError(f"attention masks of {needed:,} bytes in {available:,} bytes of memory")
