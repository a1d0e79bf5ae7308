"""What hardware can do at best: one row of datasheet facts a device.

Peaks are dense (without 2:4 sparsity; datasheets that print only sparse figures are halved). Memory is the
decimal size printed on the datasheet, which is a little less than the device reports: budgets stay safe.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from traces.errors import InputError, choices


@dataclass(frozen=True)
class Hardware:
    """Datasheet facts of one device, and where they stand."""

    name: str
    memory_bytes: int | None
    """Device memory; None for a CPU, whose memory the datasheet does not fix."""
    memory_bytes_per_s: float
    flop_per_s: Mapping[str, float]
    """Dense peak by dtype; float32 without TF32, which torch leaves off unless asked."""
    launch_s: float
    """Shortest time of one kernel on the device, seconds; measured, while all else is printed."""
    source: str
    asynchronous: bool = True
    """The host queues work ahead of the device (GPU): the slower of the two decides. On a CPU they add up."""


def _peaks(half: float, single: float) -> dict[str, float]:
    return {"bfloat16": half, "float16": half, "float32": single}


# Shortest bf16 GEMM in AIConfigurator's kernel tables (aiconfigurator-core 0.12.0), H200 and A100.
# Devices that the tables lack get the H200's.
_H200_LAUNCH_S = 3.25e-6
_A100_LAUNCH_S = 3.76e-6
# Dispatch of one torch operation is the host's cost (sim.roofline), a CPU's own kernels start at no cost.
_NO_LAUNCH_S = 0.0

HARDWARE: dict[str, Hardware] = {
    row.name: row
    for row in (
        Hardware(
            "H200",
            141_000_000_000,
            4.8e12,
            _peaks(989.5e12, 67e12),
            _H200_LAUNCH_S,
            "H200 SXM datasheet (1,979 TFLOPS sparse): https://www.nvidia.com/en-us/data-center/h200/",
        ),
        Hardware(
            "H100",
            80_000_000_000,
            3.35e12,
            _peaks(989.5e12, 67e12),
            _H200_LAUNCH_S,
            "H100 SXM5 datasheet (1,979 TFLOPS sparse): https://www.nvidia.com/en-us/data-center/h100/",
        ),
        Hardware(
            "H20",
            96_000_000_000,
            4.0e12,
            _peaks(148e12, 44e12),
            _H200_LAUNCH_S,
            "H20 specifications as published by resellers; NVIDIA has no public page for it",
        ),
        Hardware(
            "GH200",
            96_000_000_000,
            4.0e12,
            _peaks(989.5e12, 67e12),
            _H200_LAUNCH_S,
            "GH200 datasheet, 96 GB HBM3: https://www.nvidia.com/en-us/data-center/grace-hopper-superchip/",
        ),
        Hardware(
            "A100-80GB",
            80_000_000_000,
            2.039e12,
            _peaks(312e12, 19.5e12),
            _A100_LAUNCH_S,
            "A100 80GB SXM datasheet: https://www.nvidia.com/en-us/data-center/a100/",
        ),
        Hardware(
            "L40S",
            48_000_000_000,
            0.864e12,
            _peaks(362.05e12, 91.6e12),
            _H200_LAUNCH_S,
            "L40S datasheet: https://www.nvidia.com/en-us/data-center/l40s/",
        ),
        Hardware(
            "L4",
            24_000_000_000,
            0.3e12,
            _peaks(121e12, 30.3e12),
            _H200_LAUNCH_S,
            "L4 datasheet (242 TFLOPS sparse): https://www.nvidia.com/en-us/data-center/l4/",
        ),
        Hardware(
            "RTX-4090",
            24_000_000_000,
            1.008e12,
            _peaks(165.2e12, 82.6e12),
            _H200_LAUNCH_S,
            "NVIDIA Ada GPU Architecture whitepaper, table 2 (FP16 with FP32 accumulation)",
        ),
        Hardware(
            "cpu",
            None,
            38.4e9,
            # 2.4 GHz base clock x two 256-bit FMA pipes x 8 lanes x 2 FLOP; bfloat16 does two values a lane.
            _peaks(153.6e9, 76.8e9),
            _NO_LAUNCH_S,
            "one Zen 4 core with one DDR5-4800 channel: https://www.amd.com/en/products/processors/server/epyc.html",
            asynchronous=False,
        ),
    )
}


def hardware(name: str) -> Hardware:
    """The row of a device by its name, in any case.

    Raises:
        InputError: there is no such row; the line lists the names.
    """
    for row in HARDWARE.values():
        if row.name.lower() == name.strip().lower():
            return row
    raise InputError(f"unknown hardware {name!r}; known are {choices(HARDWARE)}")
