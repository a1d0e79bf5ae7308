"""Every public format: the files at hand, and the shapes of those that are too large to have."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces.describe import facts, lengths
from traces.errors import InputError
from traces.load import load
from traces.trace import Trace

# name in expected-waste.csv, file, rows, prompt min/median/p99/max and mean, output the same: as published.
FILES = [
    (
        "azure_code_2023",
        "azure/AzureLLMInferenceTrace_code.csv",
        8819,
        "3 1469 7436 7437 2047.8",
        "6 13 251.5 1899 27.9",
    ),
    (
        "azure_conv_2023",
        "azure/AzureLLMInferenceTrace_conv.csv",
        19366,
        "2 1020 4142 14050 1154.7",
        "7 129 601 1000 211.1",
    ),
    (
        "mooncake_conversation",
        "mooncake/conversation_trace.jsonl",
        12031,
        "891 6909 85400 126195 12035.1",
        "1 350 1118.5 2000 342.6",
    ),
    (
        "mooncake_synthetic",
        "mooncake/synthetic_trace.jsonl",
        3993,
        "13 11587 66456 191378 15325.5",
        "1 69 768 893 149.1",
    ),
    (
        "arxiv_summarization_llama2",
        "vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
        28257,
        "1 2730 3933 4054 2588.1",
        "5 167 3271 4056 291.4",
    ),
    (
        "sharegpt_8k_llama2",
        "sarathi-serve/sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
        30731,
        "1 1730 7434 8141 2340.0",
        "2 415 998 1024 438.7",
    ),
    (
        "sharegpt_qwen3_300",
        "llmservingsim/sharegpt-qwen3-300-sps10-lengths.csv",
        300,
        "257 728.5 2768 4570 862.3",
        "512 638 1001 1224 665.0",
    ),
    (
        "apex_lmsys_05",
        "apex-plus/llama_lmsys_05_lengths.csv",
        1024,
        "2 17 586 1037 61.7",
        "1 117 533 761 162.1",
    ),
    (
        "apex_creation_05",
        "apex-plus/llama_creation_05_lengths.csv",
        512,
        "100 309 566 1232 307.7",
        "236 1106.5 2341 3501 1144.3",
    ),
    (
        "burstgpt3_head_206",
        "burstgpt/burstgpt3-head-206.csv",
        206,
        "12 272 12549 25085 760.7",
        "2 99.5 861 1101 177.3",
    ),
    (
        "servegen_offline_d_head_165",
        "servegen/offline_trace_d-head-165.csv",
        165,
        "32 53 1361 4205 110.1",
        "12 1578 6144 6144 1950.5",
    ),
]


@pytest.mark.parametrize(("name", "file", "rows", "prompt", "output"), FILES)
def test_published_counts_and_quantiles(
    shared_data: Path, name: str, file: str, rows: int, prompt: str, output: str
) -> None:
    trace = load(str(shared_data / "traces" / file))
    assert len(trace) == trace.rows_read == rows
    assert trace.moved_rows == 0
    assert trace.source_row.tolist() == list(range(rows))
    for tokens, published in ((trace.prompt_tokens, prompt), (trace.output_tokens, output)):
        found = lengths(tokens)
        for key, text in zip(("min", "p50", "p99", "max", "mean"), published.split(), strict=True):
            half_a_digit = 0.5 * 10.0 ** -len(text.partition(".")[2])
            assert found[key] == pytest.approx(float(text), abs=half_a_digit + 1e-9), (name, key)


def test_waste_of_every_file_integer_for_integer(shared_data: Path) -> None:
    with (shared_data / "traces/expected-waste.csv").open(newline="") as file:
        expected = list(csv.DictReader(file))
    seen = 0
    for name, path, *_ in FILES:
        rows = {
            (w["policy"], w["batch_size"]): w
            for w in facts(load(str(shared_data / "traces" / path)))["waste"]
        }
        for want in (row for row in expected if row["trace"] == name):
            found = rows[want["policy"], int(want["batch_size"])]
            assert list(found) == list(want)
            for key in ("batches", "prefill_slots", "prefill_padding", "decode_slots", "decode_idle"):
                assert found[key] == int(want[key]), (name, want["policy"], want["batch_size"], key)
            assert f"{found['prefill_waste']:.6f} {found['decode_waste']:.6f}" == (
                f"{want['prefill_waste']} {want['decode_waste']}"
            )
            seen += 1
    assert seen == len(expected) == 110


def test_times_of_the_public_files(shared_data: Path) -> None:
    spans_ns = {
        "azure/AzureLLMInferenceTrace_code.csv": 3_435_948_056_000,
        "azure/AzureLLMInferenceTrace_conv.csv": 3_501_721_937_000,
        "mooncake/conversation_trace.jsonl": 3_536_999_000_000,
        "mooncake/synthetic_trace.jsonl": 1_022_025_000_000,
        "vidur/splitwise_code.csv": 3_435_948_056_000,
        "splitwise-sim/test_trace.csv": 3_000_000_000,
        "llmservingsim/sharegpt-qwen3-300-sps10-lengths.csv": 29_183_763_203 - 46_926_808,
        "apex-plus/llama_creation_05_lengths.csv": 1_097_988_150_291 - 618_518_284,
        "burstgpt/burstgpt1-format-example.csv": 113_000_000_000,
        "burstgpt/burstgpt3-format-example.csv": 144_000_000_000,
    }
    for file, span_ns in spans_ns.items():
        assert int(load(str(shared_data / "traces" / file)).arrival_ns[-1]) == span_ns, file
    gaps = np.diff(load(str(shared_data / "traces/azure/AzureLLMInferenceTrace_code.csv")).arrival_ns)
    assert (gaps.min(), gaps.max()) == (6_000, 217_168_952_000)
    assert gaps.std() / gaps.mean() == pytest.approx(13.15, abs=0.005)


def test_files_without_times_are_offline_work(shared_data: Path) -> None:
    for file in (
        "servegen/offline_trace_d-head-165.csv",
        "sarathi-serve/sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
    ):
        trace = load(str(shared_data / "traces" / file))
        assert not trace.timed
        assert not trace.arrival_ns.any()


def test_measured_requests_are_the_workload_of_the_same_project(shared_data: Path) -> None:
    folder = shared_data / "traces/llmservingsim"
    asked = load(str(folder / "sharegpt-qwen3-300-sps10-lengths.csv"))
    served = load(str(folder / "qwen3-32b-vllm-measured-requests.jsonl"))
    assert np.array_equal(asked.prompt_tokens, served.prompt_tokens)
    assert np.array_equal(asked.output_tokens, served.output_tokens)
    # Unix seconds with seven digits: the text's own ticks, not those of a float64.
    assert served.arrival_ns[1] == 1_777_142_984_866_238_800 - 1_777_142_984_578_685_500


def test_a_closed_loop_format_is_read_by_map_only(shared_data: Path) -> None:
    path = str(shared_data / "traces/tracelab/multi_session_large.csv")
    with pytest.raises(InputError, match="no known csv format"):
        load(path)
    trace = load(path, columns="arrival_s=arrival_time:ms,prompt_tokens=input_len,output_tokens=output_len")
    assert len(trace) == 303
    assert trace.prompt_tokens[:2].tolist() == [2318, 348]


def test_models_of_clients_are_no_requests(shared_data: Path) -> None:
    for name in ("language_m-small_chunk-4-trace.csv", "language_m-small_chunk-4-dataset.json"):
        with pytest.raises(InputError, match="of no known"):
            load(str(shared_data / "traces/servegen" / name))


def reading(tmp_path: Path, text: str, name: str = "trace.csv", **options: Any) -> Trace:
    path = tmp_path / name
    path.write_text(text)
    return load(str(path), **options)


def test_burstgpt_drops_failed_requests_and_counts_them(tmp_path: Path) -> None:
    rows = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    rows += "5,ChatGPT,472,18,490,x\n6,GPT-4,9,0,9,x\n7,GPT-4,0,0,0,x\n9,GPT-4,3,4,7,x\n"
    trace = reading(tmp_path, rows)
    assert trace.source_row.tolist() == [0, 3]
    assert trace.dropped == {"failed request (no response)": 2}
    assert trace.rows_read == 4
    with pytest.raises(InputError, match="line 6, column Request tokens: zero"):
        reading(tmp_path, rows + "9,GPT-4,0,4,7,x\n")


def test_bailian_is_seconds_where_mooncake_is_milliseconds(tmp_path: Path) -> None:
    row = {"timestamp": 61.114, "input_length": 20, "output_length": 3, "hash_ids": [1, 2]}
    text = json.dumps({**row, "timestamp": 60}) + "\n" + json.dumps(row) + "\n"
    assert reading(tmp_path, text, "a.jsonl").arrival_ns[1] == 1_114_000
    bailian = text.replace("{", '{"chat_id": 7, "parent_chat_id": -1, "type": "text", ')
    assert reading(tmp_path, bailian, "b.jsonl").arrival_ns[1] == 1_114_000_000


def test_the_originals_of_cut_files(tmp_path: Path) -> None:
    apex = {
        "SynthesizedBody": "x",
        "StartTimeOffset": 5,
        "GeneratedTokens": 3,
        "ContextTokens": 2,
        "RequestID": 0,
    }
    later = {**apex, "StartTimeOffset": 9}
    trace = reading(tmp_path, json.dumps(apex) + "\n" + json.dumps(later), "apex.jsonl")
    assert trace.arrival_ns.tolist() == [0, 4]
    servegen = {"request_id": 0, "type": "text", "input_length": 61, "output_length": 2370, "duration": 14000}
    assert reading(tmp_path, json.dumps(servegen) + "\n", "d.jsonl").output_tokens.tolist() == [2370]


RESULT = {
    "date": "20250101-000000",
    "input_lens": [10, 20, 30],
    "output_lens": [5, 0, 7],
    "ttfts": [0.1, 0.0, 0.2],
    "errors": ["", "refused", ""],
}


@pytest.mark.parametrize("indent", [None, 2])
def test_vllm_results_drop_what_failed(tmp_path: Path, indent: int | None) -> None:
    timed = RESULT | {"start_times": [100.25, 100.5, 101.125]}
    trace = reading(tmp_path, json.dumps(timed, indent=indent), "result.json")
    assert trace.arrival_ns.tolist() == [0, 875_000_000]
    assert trace.output_tokens.tolist() == [5, 7]
    assert trace.dropped == {"failed request (no output)": 1}
    assert not reading(tmp_path, json.dumps(RESULT, indent=indent), "old.json").timed
    with pytest.raises(InputError, match=r"result\.json, entry 1, column input_lens: not whole"):
        reading(tmp_path, json.dumps(RESULT | {"input_lens": [1.5, 2, 3]}), "result.json")


def words(tmp_path: Path) -> str:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: i for i, word in enumerate(["?", "a", "b", "c"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "words.json"))
    return str(tmp_path / "words.json")


def test_sharegpt_takes_the_first_two_turns_and_keeps_the_ids(tmp_path: Path) -> None:
    say = [["a b c", "c c"], ["a"], ["b a", "", "a"], ["c", "b b b b"]]
    document = [
        {"id": str(i), "conversations": [{"from": "x", "value": t} for t in s]} for i, s in enumerate(say)
    ]
    with pytest.raises(InputError, match="--tokenizer"):
        reading(tmp_path, json.dumps(document), "sharegpt.json")
    trace = reading(tmp_path, json.dumps(document), "sharegpt.json", tokenizer=words(tmp_path))
    assert trace.prompt_tokens.tolist() == [3, 1]
    assert trace.output_tokens.tolist() == [2, 4]
    assert trace.prompt_ids is not None
    assert trace.prompt_ids.tolist() == [1, 2, 3, 3]
    assert trace.dropped == {"fewer than two turns": 1, "empty turn": 1}


def test_vllm_custom_rows_are_text_and_a_number(tmp_path: Path) -> None:
    text = '{"prompt": "a b", "output_tokens": 9}\n{"prompt": "c", "output_tokens": 8}\n'
    trace = reading(tmp_path, text, "custom.jsonl", tokenizer=words(tmp_path))
    assert trace.prompt_tokens.tolist() == [2, 1]
    assert trace.output_tokens.tolist() == [9, 8]
    with pytest.raises(InputError, match="line 3, column prompt: no token"):
        reading(tmp_path, text + '{"prompt": "", "output_tokens": 8}\n', "c.jsonl", tokenizer=words(tmp_path))
    with pytest.raises(InputError, match=r"none\.json: no such file"):
        reading(tmp_path, text, "custom.jsonl", tokenizer="none.json")


def test_a_tokenizer_where_there_is_no_text_is_refused_before_it_is_looked_for(tmp_path: Path) -> None:
    lengths = "arrival_s,prompt_tokens,output_tokens\n0,5,5\n"
    with pytest.raises(InputError, match="holds lengths, not text"):
        reading(tmp_path, lengths, "lengths.csv", tokenizer="nobody/nothing")


@pytest.mark.parametrize(
    ("unit", "cells"),
    [
        ("s", ["1.5", "2.75"]),
        ("ms", ["1500", "2750.0"]),
        ("us", ["1500000", "2750000"]),
        ("ns", ["1500000000", "2750000000"]),
        ("iso", ["2024-05-10 00:00:01.5", "2024-05-10T00:00:02.75"]),
    ],
)
def test_any_columns_in_any_unit_by_map(tmp_path: Path, unit: str, cells: list[str]) -> None:
    text = "in;when;out\n" + "".join(f"7;{cell};8\n" for cell in cells)
    trace = reading(tmp_path, text, columns=f"arrival_s=when:{unit},prompt_tokens=in,output_tokens=out")
    assert trace.arrival_ns.tolist() == [0, 1_250_000_000]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("prompt_tokens=in", "no column for output_tokens"),
        ("prompt=in,output_tokens=out", "role 'prompt'"),
        ("prompt_tokens=in,output_tokens=out,arrival_s=when:min", "unit 'min'"),
        ("prompt_tokens=in,output_tokens=no", "column no is missing; there are in, out"),
        ("prompt_tokens", "not ROLE=COLUMN"),
        ("prompt_tokens=in,prompt_tokens=out,output_tokens=out", "given twice"),
    ],
)
def test_a_map_that_cannot_be_is_one_line(tmp_path: Path, columns: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        reading(tmp_path, "in,out\n1,2\n", columns=columns)


def test_the_named_format_overrules_and_must_fit(tmp_path: Path) -> None:
    text = '{"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": [0], "chat_id": 1}\n'
    text += text.replace('"timestamp": 1', '"timestamp": 3')
    assert reading(tmp_path, text, "a.jsonl").arrival_ns[1] == 2 * 10**9
    assert reading(tmp_path, text, "a.jsonl", format_name="mooncake").arrival_ns[1] == 2 * 10**6
    with pytest.raises(InputError, match="looked for none of this kind"):
        reading(tmp_path, text, "a.jsonl", format_name="azure")
    with pytest.raises(InputError, match="format 'azur' is not known; choose apex, azure"):
        reading(tmp_path, text, "a.jsonl", format_name="azur")
    with pytest.raises(InputError, match="--format is for files"):
        load("textbook", format_name="azure")


def test_skip_bad_counts_every_row_by_reason(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens\n"
    text += "0,1,1\n1,abc,1\n2,0,1\n3,2\n4,-5,1\n5,1,1.5\nx,1,1\n7,,1\n8,9,9\n9,1,2,3\n10,0,0\n"
    trace = reading(tmp_path, text, skip_bad=True)
    assert trace.source_row.tolist() == [0, 8]
    assert trace.dropped == {
        "2 cells where the header has 3": 1,
        "4 cells where the header has 3": 1,
        "prompt_tokens: not a number": 1,
        "prompt_tokens: zero": 2,
        "prompt_tokens: negative": 1,
        "prompt_tokens: missing": 1,
        "output_tokens: not whole": 1,
        "arrival_s: not a time": 1,
    }
    assert trace.rows_read == 11
    rows = '{"arrival_s": 1, "prompt_tokens": 2, "output_tokens": 3}\n[]\n{"arrival_s": 5\n{"arrival_s": 2}\n'
    trace = reading(tmp_path, rows, "a.jsonl", skip_bad=True)
    assert trace.dropped == {"not a JSON object": 2, "prompt_tokens: missing": 1}
    with pytest.raises(InputError, match=r"no usable request \(1 prompt_tokens: zero\)"):
        reading(tmp_path, "prompt_tokens,output_tokens\n0,1\n", skip_bad=True)
