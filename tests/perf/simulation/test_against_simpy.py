"""The simulation compared with the same server written for a general simulator, request by request."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import simpy

from tritonkit.perf.load.openloop import Arrivals, draw
from tritonkit.perf.simulation import Costs, SimulatedBatcher, simulate


class Server:
    """Triton's batcher as processes that wait for events."""

    def __init__(self, moments: list[float], batcher: SimulatedBatcher, costs: Costs) -> None:
        self.batcher, self.costs = batcher, costs
        self.env = simpy.Environment()
        self.instances = simpy.Resource(self.env, batcher.instances)
        self.queue: list[int] = []
        self.came = self.env.event()
        self.at = moments
        self.ends = [0.0] * len(moments)
        self.runs = 0
        self.env.process(self.arrive())
        self.env.process(self.schedule())
        self.env.run()

    def arrive(self) -> Generator[Any, Any, None]:
        """Requests one by one."""
        for number, moment in enumerate(self.at):
            yield self.env.timeout(moment - self.env.now)
            self.queue.append(number)
            self.came.succeed()
            self.came = self.env.event()

    def schedule(self) -> Generator[Any, Any, None]:
        """The batcher: first an instance, then requests."""
        left = len(self.at)
        while left:
            instance = self.instances.request()
            yield instance
            while not self.queue:
                yield self.came
            while not (size := self.ready()):
                until = self.at[self.queue[0]] + self.batcher.delay_s
                yield self.came | self.env.timeout(until - self.env.now)
            batch, self.queue = self.queue[:size], self.queue[size:]
            left -= size
            self.runs += 1
            self.env.process(self.run(batch, instance))

    def ready(self) -> int:
        """The size of the batch that may leave now; 0 if none."""
        most = max(1, self.batcher.max_batch_size)
        waiting = len(self.queue)
        if waiting >= most:
            return most
        if fitting := [size for size in self.batcher.preferred if size <= waiting]:
            return max(fitting)
        late = self.env.now >= self.at[self.queue[0]] + self.batcher.delay_s - 1e-12
        return waiting if late else 0

    def run(self, batch: list[int], instance: Any) -> Generator[Any, Any, None]:
        """A run of these."""
        yield self.env.timeout(self.costs.run_s(len(batch)))
        for number in batch:
            self.ends[number] = self.env.now
        self.instances.release(instance)


@pytest.mark.parametrize(
    "batcher",
    [
        SimulatedBatcher(1, 1),
        SimulatedBatcher(3, 0),
        SimulatedBatcher(1, 8),
        SimulatedBatcher(2, 8, delay_s=0.004),
        SimulatedBatcher(2, 16, (4, 8), 0.003),
        SimulatedBatcher(1, 8, (2,), 0.0),
    ],
)
@pytest.mark.parametrize("load", [0.4, 0.9])
def test_every_request_is_answered_at_the_same_moment(batcher: SimulatedBatcher, load: float) -> None:
    """Bursts of requests, with and without delays and preferred sizes."""
    costs = Costs(0.004, 0.001, spread=0.0)
    rate = load * costs.capacity(batcher)
    drawn = draw(Arrivals("bursty", 2.0, seed=3), rate, 1500 / rate)
    # Of requests that come at the very same moment the order is anybody's choice.
    moments = drawn[np.diff(drawn, prepend=-1.0) > 1e-6].tolist()
    theirs = Server(moments, batcher, costs)
    ours = simulate(moments, batcher, costs)
    assert ours.latency_s == pytest.approx(np.array(theirs.ends) - np.array(moments), abs=1e-9)
    assert ours.batch == pytest.approx(len(moments) / theirs.runs)
