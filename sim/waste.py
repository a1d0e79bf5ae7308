"""What static batching wasted in a run, in slots; the ledger says the same in seconds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.record import RunRecord
from traces.slots import Slots, batch_sum


@dataclass(frozen=True)
class KvUse:
    """KV cache that batches reserved, rows x (P + N) tokens each, and the part their prompts and outputs filled.

    Token-seconds count a batch's tokens for as long as the batch ran. The engine itself needs one token a row less:
    the last token's keys are never written.
    """

    reserved_tokens: int
    used_tokens: int
    reserved_token_s: float
    used_token_s: float
    largest_batch_tokens: int


@dataclass(frozen=True)
class Waste:
    """Wasted slots of all batches that gave an answer; the last partial batch counts at its own size."""

    prefill: Slots
    """Padding: rows x longest prompt, less the prompts."""
    decode: Slots
    """Idle: rows x longest output, less the outputs."""
    dummy_rows: int
    """Rows added to reach an allowed batch size; not part of the slots above."""
    kv: KvUse

    def to_json(self, kv_bytes_per_token: int | None) -> dict[str, Any]:
        """For the JSON of a run; bytes are null where the model is not known."""
        kv = self.kv
        peak_bytes = None if kv_bytes_per_token is None else kv.largest_batch_tokens * kv_bytes_per_token
        return {
            "prefill": {
                "slots": self.prefill.slots,
                "padding": self.prefill.wasted,
                "fraction": _fraction(self.prefill),
            },
            "decode": {
                "slots": self.decode.slots,
                "idle": self.decode.wasted,
                "fraction": _fraction(self.decode),
            },
            "dummy_rows": self.dummy_rows,
            "kv": {
                "reserved_tokens": kv.reserved_tokens,
                "used_tokens": kv.used_tokens,
                "unused_fraction": 1 - kv.used_tokens / kv.reserved_tokens if kv.reserved_tokens else None,
                "reserved_token_s": round(kv.reserved_token_s, 9),
                "used_token_s": round(kv.used_token_s, 9),
                "bytes_per_token": kv_bytes_per_token,
                "peak_reserved_bytes": peak_bytes,
            },
        }


def _fraction(slots: Slots) -> float | None:
    """Wasted share; None where there was no batch."""
    return slots.fraction if slots.slots else None


def waste(record: RunRecord) -> Waste:
    """Slots and KV cache of a run, exact integers."""
    first, rows = record.batches.first_row, record.batch_rows
    answered = np.full(len(rows), True)
    if record.measured is not None:
        answered[list(record.measured.failed)] = False
    prompts, outputs = batch_sum(record.row_prompt_tokens, first), batch_sum(record.row_output_tokens, first)
    longest_prompt, longest_output = record.padded_prompt_tokens, record.longest_output_tokens
    reserved, used = rows * (longest_prompt + longest_output), prompts + outputs
    seconds = (record.end_ns - record.batches.start_ns) / 1e9
    return Waste(
        prefill=Slots(int((rows * longest_prompt)[answered].sum()), int(prompts[answered].sum())),
        decode=Slots(int((rows * longest_output)[answered].sum()), int(outputs[answered].sum())),
        dummy_rows=int(record.batches.dummy_rows[answered].sum()),
        kv=KvUse(
            reserved_tokens=int(reserved[answered].sum()),
            used_tokens=int(used[answered].sum()),
            reserved_token_s=float((reserved * seconds)[answered].sum()),
            used_token_s=float((used * seconds)[answered].sum()),
            largest_batch_tokens=int(reserved.max(initial=0)),
        ),
    )
