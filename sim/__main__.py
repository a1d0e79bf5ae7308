"""``python -m sim``: predict what static batching does to a trace; fit, score and explain cost models."""

if __name__ == "__main__":
    # Until the command runs, Ctrl-C ends the process: there is nothing to say, and no traceback of imports.
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

import sys
from importlib import import_module

import typer

from traces.terminal import command_app, run_app

COMMANDS = ("run", "fit", "score", "explain")
"""Each is the function of that name in ``sim.NAME_command``."""


def app_of(argv: list[str]) -> typer.Typer:
    """The command line. Where one command is asked for, only its module is loaded: what the others need takes longer
    to load than some answers take."""
    app = command_app(
        "Predict the waste, step costs, latencies and throughput of static batching on a trace."
    )
    asked_for = [name for name in COMMANDS if argv[:1] == [name]]
    for name in asked_for or COMMANDS:
        app.command()(getattr(import_module(f"sim.{name}_command"), name))

    @app.callback()
    def main() -> None:
        """Predict the waste, step costs, latencies and throughput of static batching on a trace."""

    return app


app = app_of(sys.argv[1:])

if __name__ == "__main__":
    run_app(app, "python -m sim")
