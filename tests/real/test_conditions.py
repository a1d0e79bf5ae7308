"""What a measurement says of the machine it ran on."""

import json
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from real.conditions import conditions, cpu_name, gpu_state
from real.engine import Engine
from sim.profile import CONDITIONS

CUDA = torch.device("cuda", 1)


def properties(device: torch.device) -> Any:
    assert device == CUDA
    return SimpleNamespace(uuid="7f00")


def test_a_profile_finds_all_it_needs_and_json_can_hold_it(model: Any) -> None:
    about = conditions(Engine(model, "rowwise"), "tiny", "random", "cpu")
    assert set(CONDITIONS) <= set(about)
    assert json.loads(json.dumps(about)) == about
    assert about["engine"] == "rowwise"
    assert about["dtype"] == "float32"
    assert about["threads"] == 1
    assert about["software"]["torch"] == torch.__version__
    assert about["hardware"] == cpu_name() != ""
    assert about["gpu_state"] is None


def test_the_gpu_is_asked_for_its_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str], **_: Any) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "1980, 2619, 34, 75.3, 570.12\n", "")

    monkeypatch.setattr("real.conditions.shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("real.conditions.subprocess.run", answer)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert gpu_state(CUDA) == {
        "clocks.sm": "1980",
        "clocks.mem": "2619",
        "temperature.gpu": "34",
        "power.draw": "75.3",
        "driver_version": "570.12",
    }
    # Not --id=1: torch numbers only the devices that it is shown.
    assert "--id=GPU-7f00" in asked[0]


def test_a_machine_without_nvidia_smi_or_with_a_broken_one_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(command: list[str], **_: Any) -> Any:
        raise subprocess.CalledProcessError(9, command)

    monkeypatch.setattr("real.conditions.shutil.which", lambda name: None)
    assert gpu_state(CUDA) is None
    monkeypatch.setattr("real.conditions.shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("real.conditions.subprocess.run", broken)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert gpu_state(CUDA) is None
