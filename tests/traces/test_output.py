import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import typer

from tests.conftest import ROOT
from traces.__main__ import app
from traces.output import whole_file
from traces.terminal import exit_code, file_to_write, json_target


def write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode())


def test_a_failure_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write(path, "old")

    def interrupted() -> None:
        with whole_file(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_a_device_or_pipe_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    write(pipe, "text")
    reader.join(10)
    assert found == ["text"]
    assert pipe.is_fifo()


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "out.json", "text")
    assert caught.value.filename == str(tmp_path / "out.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["", ".", "absent/out.json"])
def test_where_no_file_can_go_is_said_before_the_work(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for parser in (file_to_write, json_target):
        with pytest.raises(typer.BadParameter):
            parser(place)
    assert exit_code(app, "traces", ["describe", "textbook", "--json", place]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "'--json'" in said.err
    assert len(said.err.splitlines()) == 1


def test_a_dash_is_stdout_and_a_name_stays() -> None:
    assert json_target("-") == "-"
    assert json_target("out.json") == "out.json"


@pytest.mark.parametrize(("closed", "argv", "code"), [(1, ["list"], 0), (2, ["nosuch"], 2)])
def test_a_stream_that_the_shell_closed_is_no_crash(closed: int, argv: list[str], code: int) -> None:
    command = f"exec {sys.executable} -m traces {' '.join(argv)} {closed}>&-"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout + done.stderr == ""


INTERRUPTED = """
import builtins, os, runpy, signal, sys

real_import = builtins.__import__

def interrupted(name, *rest):
    if name == "typer":
        os.kill(os.getpid(), signal.SIGINT)
    return real_import(name, *rest)

builtins.__import__ = interrupted
sys.argv = [sys.argv[1], "--help"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    "module", ["sim/__main__.py", "real/__main__.py", "traces/__main__.py", "compare.py"]
)
def test_ctrl_c_while_modules_load_is_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGINT
    assert done.stdout + done.stderr == ""
