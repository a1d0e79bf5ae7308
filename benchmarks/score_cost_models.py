"""How wrong are the cost models on rows they never saw? ``python -m benchmarks.score_cost_models``

Every figure is the mean and the 95th percentile (or the largest) of |predicted - measured| / measured over rows
that were not fitted. Splits are printed with each score; random ones take 30 % for fitting and are averaged over
seeds 0 to 4. Forms are in the modules of ``benchmarks/scores``, one a kind of measurement: constants come from
fitted rows only, but the forms were written by people who had seen the tables.
"""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.scores import decode_steps, kernels, memory_tables, transformers_tables, whole_batches
from benchmarks.scores.score import FIT_SHARE, SEEDS
from traces.terminal import command_app, err, out, run_app

app = command_app("Errors of cost and memory models on published measurements that they were not fitted to.")
PARTS = (whole_batches, decode_steps, kernels, transformers_tables, memory_tables)


@app.command()
def main(
    data: Annotated[Path, typer.Option(help="Folder with measured/ and published/.")] = Path(
        "../shared/data"
    ),
) -> None:
    """Print one row a score."""
    table = Table(
        "held-out rows of", "n", "mean %", "tail %", "asked", "reached", title="Errors of cost models"
    )
    notes = []
    start = time.perf_counter()
    for part in PARTS:
        for score in part.scores(data):
            asked = f"{score.asked_mean:g}" + ("" if score.asked_tail is None else f" / {score.asked_tail:g}")
            table.add_row(
                score.what,
                str(score.rows),
                f"{score.mean:.2f}",
                f"{score.tail:.2f} ({score.tail_name})",
                asked,
                "yes" if score.reached else "no",
            )
            if score.note:
                notes.append(f"{score.what}: {score.note}")
    console = out()
    console.print(table)
    seeds = f"{SEEDS.start} to {SEEDS.stop - 1}"
    console.print(f"random splits (decode step, H200): {FIT_SHARE:.0%} fitted, averaged over seeds {seeds}")
    if find_spec("sklearn") is None:
        console.print("residual rows need scikit-learn: pip install -e '.[learn]'", markup=False)
    for note in notes:
        console.print(note, soft_wrap=True)
    err().print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    run_app(app, "score_cost_models")
