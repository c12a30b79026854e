"""The run of `bench produce`: concurrent producers, one thread each."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .runs import (
    SAMPLES,
    VALUES,
    Measured,
    ProducePlan,
    Sampler,
    send_tables,
    sleep_until,
    values_of,
)

if TYPE_CHECKING:
    from ...clients.blocking import Log
    from ...clients.blocking.producer import Producer


def run_produce(log: "Log", topic: str, plan: ProducePlan) -> Measured:
    """Send the warm-up, then the measured records from all producers concurrently."""
    values = values_of(plan.size)
    if plan.api == "arrow":
        import pyarrow.compute  # noqa: F401 # takes a second or more, outside the measurement
    with _producers(log, plan) as producers:
        if plan.warm_up:
            _send_arrow_or_records(producers[0], topic, plan, plan.warm_up, values, None)
        shares = [
            plan.records // plan.producers + (index < plan.records % plan.producers)
            for index in range(plan.producers)
        ]
        sampler = Sampler(every=max(1, plan.records // SAMPLES))
        cpu_s, start_s = time.process_time(), time.perf_counter()
        _in_threads(
            [
                lambda producer=producer, share=share: _send_arrow_or_records(
                    producer, topic, plan, share, values, sampler
                )
                for producer, share in zip(producers, shares, strict=True)
            ]
        )
        seconds = time.perf_counter() - start_s
        cpu_s = time.process_time() - cpu_s
    return Measured(
        kind="produce",
        records=plan.records,
        bytes=plan.records * plan.size,
        seconds=seconds,
        cpu_seconds=cpu_s,
        latencies_ns={"acknowledged": sampler.latencies_ns},
    )


@contextmanager
def _producers(log: "Log", plan: ProducePlan) -> "Iterator[list[Producer]]":
    producers = [
        log.producer(
            acks=plan.acks,
            compression=plan.compression,
            linger_ms=plan.linger_ms,
            batch_size=plan.batch_size,
        )
        for _ in range(plan.producers)
    ]
    succeeded = False
    try:
        yield producers
        succeeded = True
    finally:
        for producer in producers:
            producer.close(flush=succeeded)


def _send_arrow_or_records(
    producer: "Producer",
    topic: str,
    plan: ProducePlan,
    count: int,
    values: list[bytes],
    sampler: Sampler | None,
) -> None:
    rate = None if plan.rate is None or sampler is None else plan.rate / plan.producers
    if plan.api == "arrow":
        send_tables(producer, topic, count, values, sampler, rate)
        return
    send, every = producer.send, SAMPLES if sampler is None else sampler.every
    start_ns = time.perf_counter_ns()
    for number in range(count):
        due_ns = 0
        if rate is not None:
            due_ns = start_ns + int(number * 1e9 / rate)
            sleep_until(due_ns)
        if sampler is not None and number % every == 0:
            due_ns = due_ns or time.perf_counter_ns()
            sampler.watch(send(topic, values[number % VALUES]), due_ns)
        else:
            send(topic, values[number % VALUES])
    producer.flush()


def _in_threads(works: "Sequence[Any]") -> None:
    """Run the functions concurrently, the first one in this thread; raise the first failure."""
    failures: list[Exception] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=guarded, args=(work,), name="bench", daemon=True)
        for work in works[1:]
    ]
    for thread in threads:
        thread.start()
    works[0]()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
