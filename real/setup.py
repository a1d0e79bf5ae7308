"""From the words a user gives to an engine, and the clock that suits it."""

import torch

from real.engine import Engine
from real.executor import CLOCKS, Clock
from real.weights import RANDOM, load_model, parse_device, parse_dtype
from sim.hardware import Hardware, hardware, known_hardware, named_in
from sim.rows import ENVIRONMENT
from traces.errors import InputError, choices


def load_engine(
    model: str,
    weights: str = RANDOM,
    device: str = "cpu",
    dtype: str | None = None,
    engine: str = "padded",
    threads: int = 1,
    seed: int = 0,
) -> Engine:
    """An engine with its model; sets the number of CPU threads of the whole process.

    Raises:
        InputError: a word that names nothing here, or weights that cannot be had.
    """
    torch.set_num_threads(threads)
    where = parse_device(device)
    return Engine(load_model(model, weights, where, parse_dtype(dtype, where), seed), engine)


def choose_clock(name: str | None, engine: Engine, wall_clock: bool = False) -> Clock:
    """The clock that times passes, by its name or, without one, the least disturbed.

    That is the process's CPU time on a CPU with one thread, which other programs do not lengthen. With more threads
    CPU time adds them up, a GPU's work is not in it, and a run in real time can only be timed by the wall.

    Raises:
        InputError: an unknown name, or CPU time where it says nothing.
    """
    if name is None:
        fits = engine.device.type == "cpu" and torch.get_num_threads() == 1 and not wall_clock
        return "cpu" if fits else "wall"
    if wall_clock and name == "cpu":
        raise InputError("--timed-by 'cpu' cannot drive a run in real time; use wall")
    for clock in CLOCKS:
        if clock == name:
            return clock
    raise InputError(f"unknown clock {name!r}; known are {choices(CLOCKS)}")


def datasheet(name: str, engine: Engine) -> Hardware:
    """The row of the hardware table for a device, by its own name.

    Raises:
        InputError: a GPU that the table lacks.
    """
    if engine.device.type == "cpu":
        return hardware("cpu")
    found = named_in(name)
    if found is None:
        raise InputError(
            f"no datasheet for {name!r}; known are {choices(known_hardware())}; add a row of your own ({ENVIRONMENT})"
        )
    return found
