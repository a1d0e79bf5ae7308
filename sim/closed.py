"""The queue of a closed loop: a client's next request comes a think time after its last one returned."""

from heapq import heapify, heappop, heappush

import numpy as np

from sim.queue import MemoryLimit, Queue
from traces.errors import InputError
from traces.trace import ClosedLoop, Ints, Trace


class ClosedQueue(Queue):
    """A queue whose arrivals are known only as far as requests have returned.

    Whoever is done thinking first sends the next request of the trace, so requests still arrive in its order.
    """

    def __init__(self, trace: Trace, loop: ClosedLoop, limit: MemoryLimit | None = None) -> None:
        self.arrival_ns: Ints = np.zeros(len(trace), np.int64)
        """Filled as requests come."""
        super().__init__(self.arrival_ns, trace.prompt_tokens, limit)
        self._loop = loop
        self._think = loop.think_ns(len(trace)).data
        self._sent = min(
            loop.clients, len(trace)
        )  # requests whose time is set, those still being thought of included
        self._thinking = [0] * self._sent
        heapify(self._thinking)

    @property
    def next_arrival_ns(self) -> int:
        """When the next request comes; someone must be thinking."""
        return self._thinking[0]

    def admit(self, now_ns: int) -> None:
        """Let in every request that is sent up to and including now."""
        thinking = self._thinking
        while thinking and thinking[0] <= now_ns:
            self._arrival[self._tail] = heappop(thinking)
            self._tail += 1
        self.ended = self._tail == self._count

    def returned(self, requests: int, now_ns: int) -> None:
        """A batch has returned: its clients think about what to send next."""
        for _ in range(min(requests, self._count - self._sent)):
            heappush(self._thinking, now_ns + self._think[self._sent])
            self._sent += 1

    def wake_ns(self, until_waiting: int) -> int | None:
        """The next arrival: how many more will come before the server works again is not known."""
        return self._thinking[0] if self._thinking else None

    def stuck(self, waiting_for: int) -> InputError:
        """Why a policy that waits for more requests waits for ever."""
        return InputError(
            f"a closed loop of {self._loop.clients} clients never has {waiting_for} requests waiting: "
            "give a wait (--max-wait) or a smaller batch (--max-batch)"
        )
