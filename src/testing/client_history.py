"""The history of an application under test: what its clients sent and processed, and its check."""

import time
from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..errors import QuorumlogError
from .checkers import Anomaly, AnomalyKind, History, Place, Stored, check, describe
from .checkers.ledger import short, where

if TYPE_CHECKING:
    from ..clients.blocking.log import Log
    from ..clients.blocking.producer import Producer


class ClientHistory:
    """Records what a test's producers send and what its applications process, and finds anomalies.

    `send` sends a record and notes its outcome; an application, or the test for it, calls
    `processed` for each record that it has processed. `check` compares both with the stored
    records. Values are unique in a history. All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._history = History()
        self._producers: dict[int, str] = {}  # names by id()
        self._processed: dict[str, dict[Place, list[int]]] = {}  # offsets in order, by application

    def send(
        self,
        producer: "Producer",
        topic: str,
        value: bytes,
        *,
        key: bytes | str | None = None,
        partition: int = 0,
    ) -> Any:
        """Send a record, as `Producer.send` does, and return its future. An acknowledged record
        must be stored in the end, so the producer needs acks="all", the default.

        Raises InvalidRequest for a value that was sent before, and the errors of `Producer.send`.
        """
        place = (topic, partition)
        with self._lock:
            name = self._producers.setdefault(id(producer), f"producer {len(self._producers)}")
            self._history.invoke(name, place, value, at=time.monotonic_ns())

        def delivered(stored: Any, error: QuorumlogError | None) -> None:
            now_ns = time.monotonic_ns()
            with self._lock:
                if error is None:
                    self._history.acknowledge(value, stored.offset, at=now_ns)
                else:
                    self._history.fail(value, at=now_ns, is_certain=False)

        try:
            return producer.send(topic, value, key=key, partition=partition, on_delivery=delivered)
        except Exception:
            with self._lock:
                self._history.fail(value, at=time.monotonic_ns(), is_certain=True)
            raise

    def processed(
        self, application: str, topic: str, partition: int, offset: int, value: bytes
    ) -> None:
        """Record that an application has processed a record."""
        place = (topic, partition)
        with self._lock:
            self._processed.setdefault(application, defaultdict(list))[place].append(offset)
            self._history.assign(application, place)  # its order is checked here, not poll by poll
            self._history.poll(application, place, [(offset, value)], at=time.monotonic_ns())

    def check(
        self,
        log: "Log",
        *,
        exactly_once: bool = False,
        allowed: frozenset[AnomalyKind] = frozenset(),
    ) -> None:
        """Read the topics of the history, and raise AssertionError if it has an anomaly.

        Call it when producers are flushed and applications have ended. Each application must have
        processed every stored record of its topics, with `exactly_once` each of them once, and the
        records of a partition in their order, except for repeats after a restart.
        """
        with self._lock:
            stored: dict[Place, list[tuple[int, bytes]]] = {}
            for topic in sorted({topic for topic, _ in self._places()}):
                stored |= _read(log, topic)
            found = check(self._history, stored, allowed=allowed)
            for application, offsets in self._processed.items():
                of_application = _anomalies_of(application, offsets, stored, exactly_once)
                found += [one for one in of_application if one.kind not in allowed]
        order = list(AnomalyKind)
        found.sort(key=lambda one: order.index(one.kind))
        if found:
            raise AssertionError(describe(found))

    def _places(self) -> set[Place]:
        sent = {send.place for send in self._history.sends.values()}
        return sent | {place for offsets in self._processed.values() for place in offsets}


def _read(log: "Log", topic: str) -> dict[Place, list[tuple[int, bytes]]]:
    """Return the records of every partition of a topic."""
    stored: dict[Place, list[tuple[int, bytes]]] = {
        (topic, partition.partition): [] for partition in log.admin.describe_topic(topic).partitions
    }
    with log.consumer(topic, until_end=True) as consumer:
        for record in consumer:
            place = (topic, record.partition)
            stored[place].append((record.offset, record.value or b""))
    return stored


def _anomalies_of(
    application: str, processed: dict[Place, list[int]], stored: Stored, exactly_once: bool
) -> list[Anomaly]:
    """Return the records that an application has not processed, or processed twice or out of
    order."""
    found = []
    for place in sorted({(topic, index) for topic, index in stored if _has(processed, topic)}):
        seen: set[int] = set()
        newest = -1
        for offset in processed.get(place, []):
            if offset in seen:
                if exactly_once:
                    detail = f"{application} processed {where(place, offset)} again"
                    found.append(Anomaly(AnomalyKind.PROCESSED_TWICE, detail))
            elif offset < newest:
                detail = f"{application} processed {where(place, offset)} after offset {newest}"
                found.append(Anomaly(AnomalyKind.REORDERED, detail))
            seen.add(offset)
            newest = max(newest, offset)
        found += [
            Anomaly(
                AnomalyKind.NOT_PROCESSED,
                f"{application} has not processed {short(value)} at {where(place, offset)}",
            )
            for offset, value in stored[place]
            if offset not in seen
        ]
    return found


def _has(processed: dict[Place, list[int]], topic: str) -> bool:
    return any(place[0] == topic for place in processed)
