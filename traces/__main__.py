"""``python -m traces``: describe, convert, make, list and fetch traces."""

if __name__ == "__main__":
    # Until the command runs, Ctrl-C ends the process: there is nothing to say, and no traceback of imports.
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from traces.arrivals import ARRIVALS
from traces.describe import facts, tables
from traces.errors import InputError, choices
from traces.fetch import REMOTE, cached, fetch
from traces.formats import FORMATS
from traces.lengths import LAWS
from traces.load import BUILT_IN, load
from traces.synthetic import BEGINNINGS, CLOSED, is_recipe
from traces.tables import add, show, table
from traces.terminal import (
    command_app,
    file_to_write,
    json_target,
    out,
    run_app,
    warn,
    whole,
    write_json,
)
from traces.trace import Trace
from traces.transforms import TRANSFORMS, transform
from traces.write import TARGETS, lost, write

app = command_app("Traces: what was asked of the server, and when.")

Source = Annotated[str, typer.Argument(help="A file, a built-in or fetched name, or a recipe.")]
Out = Annotated[
    Path,
    typer.Argument(
        parser=file_to_write,
        metavar="TARGET",
        help="The file to write; its suffix is the format unless --to says.",
    ),
]
Format = Annotated[str | None, typer.Option("--format", help=f"Format of the file: {choices(FORMATS)}.")]
Map = Annotated[
    str | None,
    typer.Option(
        "--map", help="Columns by name, such as arrival_s=ts:ms,prompt_tokens=in,output_tokens=out."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Drop and count unusable rows instead of refusing.")
]
Tokenizer = Annotated[str | None, typer.Option(help="Tokenizer for files that hold text: a name or a file.")]
Apply = Annotated[
    list[str] | None,
    typer.Option("--apply", help=f"A transform, such as head:n=100; again for more: {choices(TRANSFORMS)}."),
]
Seed = Annotated[int | None, typer.Option(parser=whole(0), metavar="N", help="For a recipe that names none.")]
To = Annotated[str | None, typer.Option("--to", help=f"Format to write: {choices(TARGETS)}.")]


@app.command()
def describe(
    source: Source,
    json: Annotated[
        str | None,
        typer.Option(parser=json_target, metavar="FILE|-", help="Write one JSON document; - is stdout."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(parser=whole(), metavar="TOKENS", help="Count requests whose prompt and output fit."),
    ] = None,
    format_name: Format = None,
    columns: Map = None,
    skip_bad: SkipBad = False,
    tokenizer: Tokenizer = None,
    apply: Apply = None,
    seed: Seed = None,
) -> None:
    """Rows, rate, lengths, and what static batches of them would waste."""
    trace = _loaded(source, format_name, columns, skip_bad, tokenizer, apply, seed)
    found = facts(trace, context)
    if json is not None:
        write_json(found, json)
    if json != "-":
        for table in tables(trace, found):
            show(out(), table)


@app.command()
def convert(
    source: Source,
    target: Out,
    to: To = None,
    format_name: Format = None,
    columns: Map = None,
    skip_bad: SkipBad = False,
    tokenizer: Tokenizer = None,
    apply: Apply = None,
    seed: Seed = None,
) -> None:
    """Write a trace in another format, and say what that cannot hold."""
    _write(_loaded(source, format_name, columns, skip_bad, tokenizer, apply, seed), target, to)


@app.command()
def make(
    recipe: Annotated[
        str, typer.Argument(help="Such as poisson:rate=4,n=100,prompt=512,output=uniform:1:256.")
    ],
    target: Out,
    to: To = None,
    apply: Apply = None,
    seed: Seed = None,
) -> None:
    """Write a synthetic trace."""
    if not is_recipe(recipe):
        raise InputError(f"{recipe!r} is no recipe; it begins with {choices(BEGINNINGS)}")
    _write(_loaded(recipe, None, None, False, None, apply, seed), target, to)


@app.command(name="list")
def list_names() -> None:
    """Every name that is known: traces, formats, arrival processes, laws of lengths, transforms."""
    names_table = table("Names", "what", "names", left=2)
    rows: dict[str, Iterable[str]] = {
        "built in": BUILT_IN,
        "formats read": FORMATS,
        "formats written": TARGETS,
        "arrivals": [*_with_parameters(ARRIVALS), f"{CLOSED}:clients=,think="],
        "lengths": LAWS,
        "transforms": _with_parameters(TRANSFORMS),
    }
    for what, names in rows.items():
        add(names_table, what, ", ".join(names))
    show(out(), names_table)
    public = table("Public traces (fetch NAME)", "name", "licence", "fetched", "url", left=4)
    for name, remote in REMOTE.items():
        there = "yes" if cached(name, remote).exists() else "no"
        add(public, name, remote.licence, there, remote.url)
    show(out(), public)


def _with_parameters(functions: Mapping[str, Callable[..., object]]) -> list[str]:
    """``gamma:cv=`` for each name: what it takes are the keyword-only arguments of its function."""
    found = []
    for name, function in functions.items():
        own = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        found.append(f"{name}:{','.join(f'{key}=' for key in own)}" if own else name)
    return found


@app.command(name="fetch")
def fetch_trace(name: Annotated[str, typer.Argument(help="A public trace, see list.")]) -> None:
    """Bring a public trace into the cache and check it."""
    path = fetch(name)
    out().print(Text(f"{name}: {path} ({REMOTE[name].licence})"), soft_wrap=True)


def _loaded(
    source: str,
    format_name: str | None,
    columns: str | None,
    skip_bad: bool,
    tokenizer: str | None,
    steps: list[str] | None,
    seed: int | None,
) -> Trace:
    trace = load(
        source, seed=seed, format_name=format_name, columns=columns, skip_bad=skip_bad, tokenizer=tokenizer
    )
    for step in steps or []:
        trace = transform(trace, step)
    for reason, count in trace.dropped.items():
        warn(f"{trace.name}: {count} of {trace.rows_read} rows dropped: {reason}")
    if trace.moved_rows:
        warn(
            f"{trace.name}: {trace.moved_rows} rows stood before an earlier arrival and were sorted into place"
        )
    return trace


def _write(trace: Trace, target: Path, to: str | None) -> None:
    write(trace, target, to)
    for line in lost(trace, to or target.suffix.removeprefix(".")):
        warn(f"{target} does not hold {line}")
    out().print(Text(f"{target}: {len(trace)} requests"), soft_wrap=True)


if __name__ == "__main__":
    run_app(app, "python -m traces")
