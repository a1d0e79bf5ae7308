import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from traces.errors import InputError
from traces.fetch import CACHE, REMOTE, Remote, cached, fetch, fetched, retrieve
from traces.load import load

DATA = b"arrival_s,prompt_tokens,output_tokens\n" + b"1,2,3\n" * 5000
SHA256 = hashlib.sha256(DATA).hexdigest()


class Server:
    """A web server that knows ranges and can break off in the middle."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.break_after: int | None = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                wanted = self.headers["Range"]
                server.asked.append(wanted)
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
                if start >= len(DATA):
                    self.send_error(416)
                    return
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Length", str(len(DATA) - start))
                self.end_headers()
                self.wfile.write(DATA[start:][: server.break_after])

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/trace.csv"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


def test_a_file_comes_once_and_is_kept(server: Server, cache: Path) -> None:
    remote = Remote(server.url, SHA256, "MIT")
    path = retrieve("small", remote)
    assert path == cache / "small.csv"
    assert path.read_bytes() == DATA
    assert retrieve("small", remote) == path
    assert server.asked == [None]


def test_a_broken_download_goes_on_where_it_stopped(server: Server, cache: Path) -> None:
    remote = Remote(server.url, SHA256, "MIT")
    server.break_after = 1000
    with pytest.raises(InputError, match="broke at 1000 of 30038 bytes"):
        retrieve("small", remote)
    assert not (cache / "small.csv").exists()
    server.break_after = None
    assert retrieve("small", remote).read_bytes() == DATA
    assert server.asked == [None, "bytes=1000-"]
    assert [path.name for path in cache.iterdir()] == ["small.csv"]


def test_a_wrong_checksum_leaves_nothing_and_names_url_and_place(server: Server, cache: Path) -> None:
    with pytest.raises(InputError) as error:
        retrieve("small", Remote(server.url, "0" * 64, "MIT"))
    assert str(error.value).startswith(f"{server.url}: wrong checksum")
    assert str(cache / "small.csv") in str(error.value)
    assert list(cache.iterdir()) == []


def test_no_network_names_url_and_place(cache: Path) -> None:
    with pytest.raises(InputError) as error:
        retrieve("small", Remote("http://127.0.0.1:9/trace.csv", SHA256, "MIT"))
    assert str(error.value).startswith("http://127.0.0.1:9/trace.csv: cannot be fetched")
    assert str(cache / "small.csv") in str(error.value)


def test_a_file_laid_by_hand_is_checked_and_loaded(shared_data: Path, cache: Path) -> None:
    name = "azure-code-2023"
    with pytest.raises(InputError, match=f"{name}: not fetched yet"):
        load(name)
    path = cached(name, REMOTE[name])
    path.parent.mkdir()
    path.write_bytes((shared_data / "traces/azure/AzureLLMInferenceTrace_code.csv").read_bytes())
    assert len(load(name)) == 8819
    assert fetch(name) == path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="wrong checksum"):
        load(name)


def test_names() -> None:
    assert fetched("textbook") is None
    with pytest.raises(InputError, match="'azure' is not known; choose apex-creation"):
        fetch("azure")
    for remote in REMOTE.values():
        assert remote.url.startswith("https://")
        assert remote.licence in ("CC-BY-4.0", "Apache-2.0", "MIT")
        assert remote.sha256 is None or len(bytes.fromhex(remote.sha256)) == 32


def test_table_matches_the_files_at_hand(shared_data: Path) -> None:
    files = {
        "azure-conv-2023": "azure/AzureLLMInferenceTrace_conv.csv",
        "mooncake-conversation": "mooncake/conversation_trace.jsonl",
        "mooncake-synthetic": "mooncake/synthetic_trace.jsonl",
        "vidur-arxiv": "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
        "sarathi-sharegpt-8k": "sarathi-serve/sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
    }
    for name, file in files.items():
        assert hashlib.sha256((shared_data / "traces" / file).read_bytes()).hexdigest() == REMOTE[name].sha256
