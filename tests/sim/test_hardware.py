import pytest

from sim.hardware import HARDWARE, hardware, named_in
from traces.errors import InputError


def test_every_row_has_sane_units_and_a_source() -> None:
    assert {"H200", "H100", "H20", "GH200", "A100-80GB", "L40S", "L4", "RTX-4090", "cpu"} <= set(HARDWARE)
    for name, row in HARDWARE.items():
        assert row.name == name
        assert set(row.flop_per_s) == {"bfloat16", "float16", "float32"}
        assert row.flop_per_s["bfloat16"] >= row.flop_per_s["float32"] > 1e10
        assert 1e10 < row.memory_bytes_per_s < 1e13
        assert row.memory_bytes is None or 1e10 < row.memory_bytes < 1e12
        assert 0 <= row.launch_s < 1e-5
        assert len(row.source) > 10


def test_peaks_are_dense() -> None:
    # The H200 datasheet prints 1,979 TFLOPS with sparsity; the A100's 312 is dense as printed.
    assert hardware("H200").flop_per_s["bfloat16"] == 989.5e12
    assert hardware("A100-80GB").flop_per_s["bfloat16"] == 312e12


def test_names_are_found_in_any_case_and_unknown_ones_listed() -> None:
    assert hardware(" h200 ").name == "H200"
    with pytest.raises(InputError, match=r"unknown hardware 'H900'; known are A100-80GB, .*H200.* or cpu"):
        hardware("H900")


@pytest.mark.parametrize(
    ("own_name", "row"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("RTX4090", "RTX-4090"),
        ("h100_sxm", "H100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", None),
        ("NVIDIA T4", None),
    ],
)
def test_a_device_s_own_name_finds_its_row_and_never_a_shorter_one(own_name: str, row: str | None) -> None:
    found = named_in(own_name)
    assert (None if found is None else found.name) == row
