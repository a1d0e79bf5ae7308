"""How every command speaks: results on stdout, everything else on stderr, one line for an error, exit code 2.

Exit codes: 0 done, 1 a check the user asked for failed, 2 bad input, 130 interrupted.
"""

import json
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from traces.errors import InputError
from traces.output import whole_file

REDIRECTED_COLUMNS = 100
"""Width of tables that go to a file or a pipe when COLUMNS does not say: no number is ever cut."""


def command_app(help_text: str) -> typer.Typer:
    """A command with rich help, ``--help`` only where asked for, and plain tracebacks for our own bugs."""
    return typer.Typer(
        help=help_text,
        add_completion=False,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line and leave the process with its exit code; bad input becomes one line on stderr."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the shell, as in ``>&-``
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see the top of each command's module
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(exit_code(app, name, sys.argv[1:]))


def exit_code(app: typer.Typer, name: str, argv: list[str]) -> int:
    """Run a command line; the process's exit code. Never raises for what a user did."""
    try:
        result = app(args=argv, prog_name=name, standalone_mode=False)
    except InputError as error:
        return _fail(str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}")
    except (KeyboardInterrupt, EOFError):
        return _fail("interrupted", 130)
    except Exception as error:
        # Typer's usage errors share no importable base class over its versions; all of them have this method.
        message = getattr(error, "format_message", None)
        if message is not None:
            return _fail(message())
        if type(error).__name__ == "Abort":
            return _fail("interrupted", 130)
        if type(error).__name__ == "Exit":
            return int(getattr(error, "exit_code", 1))
        raise
    code = result if isinstance(result, int) else 0
    # Some versions of Typer turn an interrupt into this code without a word.
    return _fail("interrupted", code) if code == 130 else code


def _fail(message: str, code: int = 2) -> int:
    err().print(f"[bold red]error:[/] {escape(' '.join(message.split()))}", soft_wrap=True, highlight=False)
    return code


def _console(stderr: bool, no_color: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    # A terminal that cannot show a character gets a question mark, not a crash.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    width = None
    if not stream.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        width = REDIRECTED_COLUMNS
    # NO_COLOR means plain text here; rich alone would keep bold and italics.
    plain = no_color or bool(os.environ.get("NO_COLOR"))
    return Console(stderr=stderr, width=width, no_color=plain, force_terminal=False if plain else None)


def out(no_color: bool = False) -> Console:
    """Where results go. Made anew at each call, so that redirection in tests is seen."""
    return _console(stderr=False, no_color=no_color)


def err() -> Console:
    """Where progress, warnings and errors go."""
    return _console(stderr=True)


def warn(message: str) -> None:
    """One line of warning on stderr."""
    err().print(f"[yellow]warning:[/] {escape(message)}", soft_wrap=True, highlight=False)


def write_json(document: Any, target: str) -> None:
    """Write one JSON document to a file, or to stdout for ``-``; never through rich, which would wrap it.

    Not-a-number is refused: what does not exist must be null.
    """
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_text(Path(target), text)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: a full disk or Ctrl-C leaves what was there before."""
    with whole_file(path) as file:
        file.write(text.encode())


def whole(at_least: int = 1) -> Callable[[str], int]:
    """Parser of an option that takes a whole number."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except (ValueError, TypeError):
            value = at_least - 1
        if value < at_least:
            raise typer.BadParameter(f"{text!r} is not a whole number of at least {at_least}")
        return value

    return parse


def number(above: float = 0.0, zero: bool = False) -> Callable[[str], float]:
    """Parser of an option that takes a finite number above a bound (or equal to it, with ``zero``)."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except (ValueError, TypeError):
            value = math.nan
        if not math.isfinite(value) or value < above or (value == above and not zero):
            relation = "of at least" if zero else "above"
            raise typer.BadParameter(f"{text!r} is not a number {relation} {above:g}")
        return value

    return parse


def file_to_write(text: str) -> Path:
    """Parser of an option that names a file for results: refused before the work, not after it."""
    path = Path(text)
    if not text or path.is_dir():
        raise typer.BadParameter(f"{text!r} is {'a folder' if text else 'no name'}; name a file")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{text!r}: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK):
        raise typer.BadParameter(f"{text!r}: the folder {str(path.parent)!r} cannot be written to")
    return path


def json_target(text: str) -> str:
    """Parser of an option that names a file for results, or ``-`` for stdout."""
    return text if text == "-" else str(file_to_write(text))
