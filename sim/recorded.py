"""The passes of a measured run, as a profile: what the engine took, step by step, under a real schedule."""

import numpy as np

from sim.passes import driving_steps
from sim.profile import CONDITIONS, Profile
from sim.record import RunRecord
from sim.run import rounding_of
from sim.step import Step, padded_decode, padded_prefill
from traces.errors import InputError

STATED = (*CONDITIONS, "device", "weights", "threads", "host", "gpu_state", "warm_ups")
"""What of a run's set-up says how its passes were measured."""


def recorded_passes(record: RunRecord) -> Profile:
    """Every pass of a measured run with its time by the clock that drove it; batches that failed are left out.

    Raises:
        InputError: a simulated run, one without passes, or one that does not state its conditions.
    """
    if record.measured is None:
        raise InputError("a simulated run holds no measured passes")
    passes = np.diff(record.measured.first_step, append=len(record.measured.step_wall_ns))
    batch = np.repeat(np.arange(len(passes)), passes)
    place = np.arange(len(batch)) - record.measured.first_step[batch]
    rows, prompt = (record.batch_rows + record.batches.dummy_rows)[batch], record.padded_prompt_tokens[batch]
    prefill, decode = (
        padded_prefill(rows, prompt),
        padded_decode(rows, rounding_of(record).context(prompt + place)),
    )
    steps = Step(
        *(
            np.where(place == 0, a, b)
            for a, b in zip(vars(prefill).values(), vars(decode).values(), strict=True)
        )
    )
    failed = np.isin(np.arange(len(passes)), list(record.measured.failed))
    kept = np.flatnonzero(~failed[batch])
    return Profile(
        steps.take(kept),
        driving_steps(record)[kept] / 1e9,
        {key: record.setup[key] for key in STATED if key in record.setup},
        record.batches.before_ns[~failed] / 1e9,
        record.batches.after_ns[~failed] / 1e9,
    )
