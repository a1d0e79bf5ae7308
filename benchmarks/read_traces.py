"""How fast and in how much memory a large trace is read: ``python benchmarks/read_traces.py --rows 27000000``.

Makes a file in the shape of Azure's week of 2024 (a stamp with zone, two lengths), reads it in a process of its
own and prints rows per second and that process's peak memory.
"""

import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from traces.load import load
from traces.terminal import command_app, out, run_app, whole

app = command_app("Rows per second and peak memory of reading a large trace.")
CHUNK_ROWS = 1_000_000


def make(path: Path, rows: int) -> None:
    """Write ``rows`` requests, 45 a second from 2024-05-10 on, microseconds written only where there are any."""
    rng = np.random.default_rng(0)
    now_us = 1_715_299_200_000_000
    with path.open("wb") as file:
        file.write(b"TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for start in range(0, rows, CHUNK_ROWS):
            n = min(CHUNK_ROWS, rows - start)
            at_us = now_us + np.cumsum(rng.integers(0, 44_444, n))
            now_us = int(at_us[-1])
            stamp = pc.strftime(pa.array(at_us).cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
            lengths = [pa.array(rng.integers(1, 8000, n)).cast(pa.string()) for _ in range(2)]
            lines = pc.binary_join_element_wise(
                pc.binary_join_element_wise(stamp, "+00:00", ""), *lengths, ","
            )
            file.write("\n".join(lines.to_pylist()).encode() + b"\n")


def measure(path: str) -> tuple[int, float, int]:
    """Rows, seconds and peak bytes of reading a file in this process."""
    start_s = time.perf_counter()
    rows = len(load(path))
    return rows, time.perf_counter() - start_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@app.command()
def main(
    rows: int = typer.Option("1000000", parser=whole(), metavar="ROWS", help="Requests in the file."),
) -> None:
    """Make a file, read it, print one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "azure2024.csv"
        make(path, rows)
        # A fresh process, so that making the file is not in the peak.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            read, took_s, peak_bytes = pool.apply(measure, (str(path),))
        size_bytes = path.stat().st_size
    out().print(
        f"{read} rows ({size_bytes / 1e6:.0f} MB) in {took_s:.1f} s: {read / took_s:,.0f} rows/s, "
        f"peak {peak_bytes / 1e9:.2f} GB"
    )


if __name__ == "__main__":
    run_app(app, "read_traces")
