"""The conditions of a measurement: hardware, software and the state of the machine. No dates, no host names."""

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
import transformers

from real.engine import Engine

GPU_FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "driver_version")
"""What nvidia-smi is asked for: MHz, MHz, degrees Celsius, watts."""


def conditions(engine: Engine, model: str, weights: str, clock: str) -> dict[str, Any]:
    """What a profile or a measured run says of itself; JSON values only."""
    return {
        "hardware": hardware_name(engine.device),
        "device": str(engine.device),
        "model": model,
        "weights": weights,
        "dtype": str(engine.dtype).removeprefix("torch."),
        "engine": engine.name,
        "clock": clock,
        "threads": torch.get_num_threads(),
        "software": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "cuda": torch.version.cuda,
        },
        "host": {"cpu": cpu_name(), "system": platform.system(), "machine": platform.machine()},
        "gpu_state": gpu_state(engine.device),
    }


def hardware_name(device: torch.device) -> str:
    """The name of what computes."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def gpu_state(device: torch.device) -> dict[str, str] | None:
    """Clocks, temperature, power and driver of a CUDA device as nvidia-smi tells them; None if it cannot."""
    command = shutil.which("nvidia-smi")
    if device.type != "cuda" or command is None:
        return None
    query = [
        f"--query-gpu={','.join(GPU_FIELDS)}",
        "--format=csv,noheader,nounits",
        # Not by index: CUDA_VISIBLE_DEVICES renumbers the devices for torch and not for nvidia-smi.
        f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}",
    ]
    try:
        done = subprocess.run([command, *query], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(zip(GPU_FIELDS, (value.strip() for value in done.stdout.split(",")), strict=False))
