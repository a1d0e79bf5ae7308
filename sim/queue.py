"""What waits for a server: arrivals up to now, less those already taken."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from traces.trace import Ints, Trace


class MemoryLimit:
    """A cap on the padded KV cache of a batch: rows x (longest prompt + longest output) tokens, dummy rows included."""

    def __init__(self, trace: Trace, max_kv_tokens: int, row_counts: Sequence[int] = ()) -> None:
        self.max_kv_tokens = max_kv_tokens
        self._row_counts = row_counts
        self._prompt = trace.prompt_tokens.data
        self._output = trace.output_tokens.data

    def fitting(self, requests: Sequence[int]) -> int:
        """How many of these requests, from the first on, fit together."""
        prompt = output = rows = 0
        for request in requests:
            prompt = max(prompt, self._prompt[request])
            output = max(output, self._output[request])
            if self._computed(rows + 1) * (prompt + output) > self.max_kv_tokens:
                break
            rows += 1
        return rows

    def _computed(self, rows: int) -> int:
        """Rows with the dummy ones that fill them up to an allowed count."""
        place = bisect_left(self._row_counts, rows)
        return self._row_counts[place] if place < len(self._row_counts) else rows


class Queue:
    """Requests of a stream, by index, in order of arrival. The server's; a policy sees it as :class:`Waiting`."""

    def __init__(self, arrival_ns: Ints, prompt_tokens: Ints, limit: MemoryLimit | None = None) -> None:
        self._arrival = np.ascontiguousarray(arrival_ns).data
        self._prompt = prompt_tokens
        self._limit = limit
        self._passed_over: list[int] = []  # older requests that a policy left behind, rising
        self._head = 0  # the first request never taken nor passed over
        self._tail = 0  # the first request that has not arrived
        self._count = len(self._arrival)
        self.ended = False
        """No further request will come."""

    def __len__(self) -> int:
        return len(self._passed_over) + self._tail - self._head

    @property
    def oldest_arrival_ns(self) -> int:
        """When the oldest waiting request came. At least one must wait."""
        return self._arrival[self._passed_over[0] if self._passed_over else self._head]

    def prompt_tokens(self) -> Ints:
        """Prompt lengths of all that wait, oldest first; a copy."""
        return np.concatenate([self._prompt[self._passed_over], self._prompt[self._head : self._tail]])

    def fitting(self, rows: int) -> int:
        """How many of the ``rows`` oldest fit into memory together; all that wait if fewer do and all fit."""
        waiting = len(self._passed_over) + self._tail - self._head
        if rows > waiting:
            rows = waiting
        return rows if self._limit is None else self._limit.fitting(self._oldest(rows))

    @property
    def next_arrival_ns(self) -> int:
        """When the next request comes; the stream must not have ended."""
        return self._arrival[self._tail]

    def admit(self, now_ns: int) -> None:
        """Let in every arrival up to and including now."""
        tail, arrival = self._tail, self._arrival
        if self.ended or arrival[tail] > now_ns:
            return
        near = tail + 16  # most often only a few have come since the last look
        if near < self._count and arrival[near] > now_ns:
            self._tail = bisect_right(arrival, now_ns, tail, near)
        else:
            self._tail = bisect_right(arrival, now_ns, tail)
            self.ended = self._tail == self._count

    def returned(self, requests: int, now_ns: int) -> None:
        """A batch has returned; in an open stream nobody waits for that to send the next request."""

    def stuck(self, waiting_for: int) -> Exception:
        """What is wrong where a policy waits for more requests than will ever come."""
        return RuntimeError(
            f"a policy waits for {waiting_for} requests or a time, neither of which will come"
        )

    def wake_ns(self, until_waiting: int) -> int | None:
        """When ``until_waiting`` requests wait, the next one no longer fits into memory, or the stream ends,
        whichever is first; None if none of it lies ahead."""
        if self.ended:
            return None
        wanted = self._head + until_waiting - len(self._passed_over)
        if self._limit is not None:
            ahead = self._passed_over + list(range(self._head, min(wanted, self._count)))
            fitting = self._limit.fitting(ahead)
            if fitting < len(ahead):
                wanted = self._head + fitting + 1 - len(self._passed_over)
        return self._arrival[max(min(wanted, self._count) - 1, self._tail)]

    def _oldest(self, rows: int) -> Sequence[int]:
        if not self._passed_over:
            return range(self._head, self._head + rows)
        old = self._passed_over[:rows]
        return old + list(range(self._head, self._head + rows - len(old)))

    def take(self, rows: int | Sequence[int]) -> Sequence[int]:
        """Remove the oldest ``rows`` requests, or those at these rising positions, and return their indices.

        Raises:
            ValueError: a policy takes nothing, what does not wait, or one request twice.
        """
        waiting = len(self._passed_over) + self._tail - self._head
        if isinstance(rows, int):
            if not 0 < rows <= waiting:
                raise ValueError(f"a policy takes {rows} of {waiting} waiting requests")
            if not self._passed_over:
                head = self._head
                self._head = head + rows
                return range(head, head + rows)
        positions = list(range(rows) if isinstance(rows, int) else rows)
        rising = all(a < b for a, b in pairwise([-1, *positions, waiting]))
        if not positions or not rising:
            raise ValueError(f"a policy takes the positions {positions} of {waiting} waiting requests")
        looked_at = self._oldest(positions[-1] + 1)
        taken = [looked_at[i] for i in positions]
        gone = set(taken)
        # Only what lies before the last one taken has been passed over; the rest still waits in a row.
        self._passed_over = [i for i in looked_at if i not in gone] + self._passed_over[len(looked_at) :]
        self._head = max(self._head, taken[-1] + 1)
        return taken


class Waiting:
    """What a policy may know of a queue: how many wait, since when, how long their prompts are and how many fit.

    Neither output lengths nor anything of later arrivals is among the answers, and nothing here changes the queue.
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def oldest_arrival_ns(self) -> int:
        """When the oldest waiting request came. At least one must wait."""
        return self._queue.oldest_arrival_ns

    def prompt_tokens(self) -> Ints:
        """Prompt lengths of all that wait, oldest first; a copy."""
        return self._queue.prompt_tokens()

    def fitting(self, rows: int) -> int:
        """How many of the ``rows`` oldest fit into memory together; all that wait if fewer do and all fit."""
        return self._queue.fitting(rows)
