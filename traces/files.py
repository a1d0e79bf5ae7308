"""Opening files: plain or gzip, as bytes or text, with one clear line for a damaged one."""

import codecs
import gzip
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import pyarrow as pa

from traces.errors import InputError
from traces.progress import Progress

LAST_READ_S = 0.5
"""How long to wait for a reader that may never come back for more."""
BLOCK_BYTES = 1 << 24
"""Bytes read at once; also the longest line of a CSV file."""


def guarded(path: Path) -> "_Guard":
    """Turns what Arrow, gzip and the decoder say about a damaged file into one line that names it."""
    return _Guard(path)


class _Guard:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (EOFError, gzip.BadGzipFile)) or type(error).__name__ == "error":
            raise InputError(f"{self.path}: damaged gzip file ({error})") from None
        if isinstance(error, UnicodeDecodeError):
            raise InputError(f"{self.path}: not UTF-8 text ({error.reason})") from None
        if isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and error.filename is None):
            said = " ".join(str(error).split())
            if "straddling" in said:
                said = f"a line of more than {BLOCK_BYTES} bytes"
            raise InputError(f"{self.path}: {said[:200]}") from None


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked where they are gzip."""
    with path.open("rb") as raw:
        if raw.peek(2)[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield raw


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """The file's text without byte-order mark; what is not UTF-8 becomes U+FFFD."""
    with open_bytes(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", "replace", newline) as text:
        yield text


class Utf8:
    """A stream that Arrow reads from, refused at the first byte that is not UTF-8: later, in a row with too few
    cells, Arrow could only print a traceback of its own."""

    closed = False

    def __init__(self, path: Path, raw: BinaryIO, progress: Progress) -> None:
        self._path = path
        self._raw = raw
        self._progress = progress
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._lines = 1
        self._one_at_a_time = threading.Lock()
        self._stopped = False
        self._ended = threading.Event()

    def read(self, count: int = -1) -> bytes:
        """The next bytes; none after the end, or once stopped."""
        with self._one_at_a_time:
            data = b"" if self._stopped else self._next(count)
            if not data:
                self._ended.set()
            return data

    def __enter__(self) -> "Utf8":
        return self

    def __exit__(self, *_: Any) -> None:
        """End the stream. Arrow reads ahead in a thread of its own, also after it has given up on a file; a process
        that ends while that thread is in here is aborted, so this waits until it has been told that there is no more.
        """
        with self._one_at_a_time:
            self._stopped = True
        self._ended.wait(LAST_READ_S)

    def _next(self, count: int) -> bytes:
        data = self._raw.read(count)
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._lines + error.object[: error.start].count(b"\n")
            raise InputError(f"{self._path}, line {line}: not UTF-8 text") from None
        self._lines += data.count(b"\n")
        self._progress.add(len(data))
        return data

    def close(self) -> None:
        """The owner of the file closes it."""
