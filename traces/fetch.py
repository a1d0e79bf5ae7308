"""Public traces that are not part of the project: where they are, what they hash to, under which licence.

A fetched file lies in the cache folder, ``$STATIC_BATCHING_CACHE`` or the system's; one laid there by hand under
the same name is as good. A broken download is resumed where it stopped.
"""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from traces.errors import InputError, choices
from traces.terminal import err, warn

CACHE = "STATIC_BATCHING_CACHE"
"""Environment variable that names the cache folder."""
READ_BYTES = 1 << 20
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Remote:
    """One public file."""

    url: str
    sha256: str | None
    """None: nobody has published it; what arrives is printed."""
    licence: str

    @property
    def suffix(self) -> str:
        """``.csv`` or ``.jsonl``."""
        return Path(self.url).suffix


_RAW = "https://raw.githubusercontent.com"
_AZURE = f"{_RAW}/Azure/AzurePublicDataset/b469a113cedca53ddc3bdea71a143dc4b7d8700c/data"
_AZURE_2024 = "https://azurepublicdatasettraces.blob.core.windows.net/azurellminfererencetrace"
_MOONCAKE = f"{_RAW}/kvcache-ai/Mooncake/3b5a594133958449a1feaf1c9e0fc1b553e34a28/FAST25-release/traces"
_VIDUR = f"{_RAW}/microsoft/vidur/7d47513363ec447a741ac5e47241580b47724fbf/data/processed_traces"
_SARATHI = f"{_RAW}/microsoft/sarathi-serve/72339db5b120614033b317880ad3a05a5e4c9415/data/processed_traces"
_LLMSERVINGSIM = f"{_RAW}/casys-kaist/LLMServingSim/5daddb21a545658d5150b535712d0494584b5278"
_APEX = f"{_RAW}/microsoft/apex_plus/8769096536a34e8b3010fd444021f13858663a93/traces/llama"
_BURSTGPT = "https://github.com/HPMLL/BurstGPT/releases/download/v1.1"
_BAILIAN = "https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon/raw/0b4273a1d8a83935b9d9356e78f95c31f2ac64cf"

REMOTE: dict[str, Remote] = {
    "azure-code-2023": Remote(
        f"{_AZURE}/AzureLLMInferenceTrace_code.csv",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
        "CC-BY-4.0",
    ),
    "azure-conv-2023": Remote(
        f"{_AZURE}/AzureLLMInferenceTrace_conv.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
        "CC-BY-4.0",
    ),
    "azure-code-2024": Remote(f"{_AZURE_2024}/AzureLLMInferenceTrace_code_1week.csv", None, "CC-BY-4.0"),
    "azure-conv-2024": Remote(f"{_AZURE_2024}/AzureLLMInferenceTrace_conv_1week.csv", None, "CC-BY-4.0"),
    "mooncake-conversation": Remote(
        f"{_MOONCAKE}/conversation_trace.jsonl",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        "Apache-2.0",
    ),
    "mooncake-synthetic": Remote(
        f"{_MOONCAKE}/synthetic_trace.jsonl",
        "bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
        "Apache-2.0",
    ),
    "vidur-arxiv": Remote(
        f"{_VIDUR}/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
        "9d3580538d915ca75e4aaaa54590b42dbb17abc6d74c8913310cf07c232adcdc",
        "MIT",
    ),
    "sarathi-sharegpt-8k": Remote(
        f"{_SARATHI}/sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
        "6d6c296302a853e2669a674a96f269283e60c57e60363bd450588a1066919f9f",
        "Apache-2.0",
    ),
    "llmservingsim-sharegpt": Remote(
        f"{_LLMSERVINGSIM}/workloads/sharegpt-qwen3-32b-300-sps10.jsonl",
        "4af54eb2f7ac12b0856a1668e367fc8a330acd37c4f6c3e336ae02229e21a8bb",
        "MIT",
    ),
    "apex-lmsys": Remote(
        f"{_APEX}/lmsys_05.jsonl",
        "6df81d1df616e66fc6f05c556c7535be567a191ebbde0269255864529a27e177",
        "MIT",
    ),
    "apex-creation": Remote(
        f"{_APEX}/creation_05.jsonl",
        "82377a085dc271cbbb14ef56d5bb560b3f013445ea5627fb3341762ed5319b9e",
        "MIT",
    ),
    "burstgpt-1": Remote(
        f"{_BURSTGPT}/BurstGPT_1.csv",
        "4bb3783693d0a435686fbfc885615d2349bd067239079fa4b749f2e679e12122",
        "CC-BY-4.0",
    ),
    "burstgpt-2": Remote(
        f"{_BURSTGPT}/BurstGPT_2.csv",
        "44bf5942b03fca42c01a226a545ad3a750ec62688faecd67b6831c56a8928bf7",
        "CC-BY-4.0",
    ),
    "bailian-thinking": Remote(
        f"{_BAILIAN}/qwen_thinking_blksz_16.jsonl",
        "41ac36d9d1b54d084eeb6b05e9d142ba9d02f8bf79cfc9fff418d8ab7cdee906",
        "Apache-2.0",
    ),
    "bailian-coder": Remote(
        f"{_BAILIAN}/qwen_coder_blksz_16.jsonl",
        "3d74974cebb7bccb69b1ca6ea210a44d9a3033443c0271ed015327284dea1aff",
        "Apache-2.0",
    ),
}
"""Public traces by the name that ``fetch`` and :func:`traces.load.load` take."""


def cached(name: str, remote: Remote) -> Path:
    """Where a trace lies once it is fetched, or is looked for when laid by hand."""
    import pooch  # slow to import, and most commands fetch nothing

    return Path(os.environ.get(CACHE) or pooch.os_cache("static-batching"), f"{name}{remote.suffix}")


def fetched(name: str) -> Path | None:
    """The file of a fetched trace; None where ``name`` is no such trace.

    Raises:
        InputError: it has not been fetched, or the file there is not the one that was published.
    """
    if name not in REMOTE:
        return None
    remote = REMOTE[name]
    path = cached(name, remote)
    if not path.exists():
        raise InputError(f"{name}: not fetched yet (python -m traces fetch {name}); looked for {path}")
    _check(remote, path)
    return path


def fetch(name: str) -> Path:
    """Bring a public trace into the cache, if it isn't there, and check it.

    Raises:
        InputError: no such name, no network, or a wrong checksum; the line names the URL and the place.
    """
    if name not in REMOTE:
        raise InputError(f"{name!r} is not known; choose {choices(REMOTE)}")
    return retrieve(name, REMOTE[name])


def retrieve(name: str, remote: Remote) -> Path:
    """The same for any file, see :func:`fetch`."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    path = cached(name, remote)
    if path.exists():
        _check(remote, path)
        return path
    part = path.with_name(f"{path.name}.part")

    def resumed(url: str, target: Any, _: Any) -> None:
        _download(url, part)
        part.replace(target)

    try:
        pooch.retrieve(remote.url, remote.sha256, path.name, path.parent, downloader=resumed)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{remote.url}: wrong checksum, expected sha256 {remote.sha256}; "
            f"a file laid by hand is looked for at {path}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        said = getattr(error, "reason", None) or error
        raise InputError(
            f"{remote.url}: cannot be fetched ({said}); a file laid by hand is looked for at {path}"
        ) from None
    if remote.sha256 is None:
        warn(f"{name}: no checksum is published; sha256 of what came is {_sha256(path)}")
    return path


def _check(remote: Remote, path: Path) -> None:
    if remote.sha256 is not None and _sha256(path) != remote.sha256:
        raise InputError(f"{path}: wrong checksum, expected sha256 {remote.sha256} of {remote.url}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(url: str, part: Path) -> None:
    """Bytes of a URL into a file, from where an earlier try stopped."""
    part.parent.mkdir(parents=True, exist_ok=True)
    done = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "static-batching"} | ({"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and done:
            return  # nothing is left to fetch; the checksum decides
        raise
    with answer, part.open("ab" if answer.status == 206 else "wb") as file:
        done = file.tell()
        expected = done + int(answer.headers["Content-Length"]) if answer.headers["Content-Length"] else None
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        with Progress(*columns, console=err(), transient=True, disable=not err().is_terminal) as bar:
            task = bar.add_task(Path(url).name, total=expected, completed=done)
            while data := answer.read(READ_BYTES):
                file.write(data)
                bar.advance(task, len(data))
        if expected is not None and file.tell() != expected:
            raise OSError(f"the connection broke at {file.tell()} of {expected} bytes; run again to resume")
