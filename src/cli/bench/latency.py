"""The run of `bench latency`: single records at a steady rate, and a concurrent consumer."""

import threading
import time
from typing import TYPE_CHECKING

from ...errors import QuorumlogError, TimedOut
from .runs import LatencyPlan, Measured, Sampler, sleep_until, values_of

if TYPE_CHECKING:
    from ...clients.blocking import Log

FIRST_WAIT_S = 10.0  # for the consumer to reach the end of the topic
LAST_WAIT_S = 30.0  # for the last records


def run_latency(log: "Log", topic: str, plan: LatencyPlan) -> Measured:
    """Send single records at a rate, consume them in another thread, and measure both latencies."""
    value = values_of(plan.size)[0]
    total = plan.warm_up + plan.records
    reader = _Reader(log, topic, total)
    sampler = Sampler(every=1)
    cpu_s = start_s = 0.0
    due: list[int] = []
    try:
        reader.wait_ready()
        with log.producer(acks=plan.acks, linger_ms=0) as producer:
            producer.send(
                topic, value
            ).result()  # looks up the leader and connects before the measurement
            start_ns = time.perf_counter_ns()
            for number in range(total):
                if number == plan.warm_up:
                    cpu_s, start_s = time.process_time(), time.perf_counter()
                due_ns = start_ns + int(number * 1e9 / plan.rate)
                sleep_until(due_ns)
                due.append(due_ns)
                delivery = producer.send(topic, value)
                if number >= plan.warm_up:
                    sampler.watch(delivery, due_ns)
            producer.flush()
        arrivals = reader.wait_end()
        seconds = time.perf_counter() - start_s
        cpu_s = time.process_time() - cpu_s
    finally:
        reader.stop()
    ends = list(zip(due, arrivals, strict=True))[plan.warm_up :]
    return Measured(
        kind="latency",
        records=plan.records,
        bytes=plan.records * plan.size,
        seconds=seconds,
        cpu_seconds=cpu_s,
        latencies_ns={
            "acknowledged": sampler.latencies_ns,
            "read": [arrived - begun for begun, arrived in ends],
        },
    )


class _Reader:
    """A consumer in its own thread, which records the arrival time of each record."""

    def __init__(self, log: "Log", topic: str, count: int) -> None:
        self._log = log
        self._topic = topic
        self._count = count + 1  # one record precedes the measurement
        self._arrivals: list[int] = []
        self._error: QuorumlogError | None = None
        self._is_ready = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._main, name="bench reader", daemon=True)
        self._thread.start()

    def wait_ready(self) -> None:
        """Wait until the consumer is at the end of the topic; raise TimedOut."""
        if not self._is_ready.wait(FIRST_WAIT_S):
            raise TimedOut(f"the consumer is not ready after {FIRST_WAIT_S:.0f} s")
        self._raise()

    def wait_end(self) -> list[int]:
        """Wait for all records, and return their arrival times; raise TimedOut."""
        self._thread.join(LAST_WAIT_S)
        self._raise()
        if len(self._arrivals) < self._count:
            raise TimedOut(
                f"{self._count - len(self._arrivals)} of {self._count} records did not arrive "
                f"within {LAST_WAIT_S:.0f} s"
            )
        return self._arrivals[1 : self._count]

    def stop(self) -> None:
        """End the thread."""
        self._is_stopping = True
        self._thread.join(FIRST_WAIT_S)

    def _main(self) -> None:
        try:
            with self._log.consumer(self._topic, start="latest") as consumer:
                consumer.poll(timeout_ms=1)  # finds the end
                self._is_ready.set()
                while len(self._arrivals) < self._count and not self._is_stopping:
                    records = consumer.poll(timeout_ms=200)
                    now_ns = time.perf_counter_ns()
                    self._arrivals.extend([now_ns] * len(records))
        except QuorumlogError as error:
            self._error = error
        finally:
            self._is_ready.set()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
