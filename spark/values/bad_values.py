"""The reaction of a task to values that do not decode: fail, drop or dead letter.

A dead letter is written before the batch that lacks it goes to Spark, so none is lost. Spark may
run a task again, and a DataFrame as often as it is used; each run writes its dead letters again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quorumlog.errors import UndecodableValue, UnknownTopicOrPartition
from quorumlog.ids import TopicPartition
from quorumlog.spark.broker_calls import Cluster, now_ms
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import BadValueMode, Subscribed, ValueOptions

LOGGED_MAX: Final = 10
"""Bad values that a task logs one by one; the others only count."""

DELIVERY_TIMEOUT_MS_MIN: Final = 10
"""Minimum time limit of a delivery; a producer waits for less than it before it sends."""

logger = logging.getLogger(__name__)


def check_dead_letter_topic(cluster: Cluster, options: ValueOptions) -> None:
    """Raise UnknownTopicOrPartition if the dead letter topic of a read does not exist."""
    topic = options.dead_letter_topic
    if topic is not None and not cluster.leaders(Subscribed((topic,)), must_exist=False):
        raise UnknownTopicOrPartition(
            "the topic of option 'deadLetterTopic' does not exist; create it (quorumlog topics "
            f"create {topic}), or correct the option",
            topic=topic,
        )


@dataclass(frozen=True, slots=True)
class BadValue:
    """A record with a value that does not decode."""

    offset: int
    reason: str
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]


class BadValues:
    """Handles the bad values of one task."""

    def __init__(
        self,
        options: ValueOptions,
        access: ClusterAccess,
        place: TopicPartition,
        *,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` limits the delivery of the dead letters of one batch."""
        self.options = options
        self._access = access
        self._timeout_ms = max(timeout_ms, DELIVERY_TIMEOUT_MS_MIN)
        self._place = place
        self._count = 0

    @property
    def needs_records(self) -> bool:
        """True if `handle` needs keys and headers."""
        return self.options.mode is BadValueMode.DEAD_LETTER

    def handle(self, bad: Sequence[BadValue]) -> None:
        """Handle the bad values of one batch, in offset order, at least one.

        Raises UndecodableValue with mode=fail; the errors of a producer with mode=deadletter.
        """
        match self.options.mode:
            case BadValueMode.FAIL:
                raise self._error(
                    bad[0],
                    "; correct the producer or option 'valueSchema', or set option 'mode' to drop "
                    "or deadletter",
                )
            case BadValueMode.DROP:
                pass
            case BadValueMode.DEAD_LETTER:
                self._send(bad)
        for each in bad[: max(LOGGED_MAX - self._count, 0)]:
            logger.warning(
                "spark.bad_value place=%s offset=%d mode=%s reason=%s",
                self._place,
                each.offset,
                self.options.mode,
                each.reason,
            )
        self._count += len(bad)

    def log_count(self) -> None:
        """Log the number of bad values of the task, if there was one."""
        if self._count:
            logger.warning(
                "spark.bad_values place=%s count=%d mode=%s",
                self._place,
                self._count,
                self.options.mode,
            )

    def _error(self, bad: BadValue, remedy: str = "") -> UndecodableValue:
        return UndecodableValue(
            f"offset {bad.offset}: the value is not {self.options.format} of the schema: "
            f"{bad.reason}{remedy}",
            topic=self._place.topic,
            partition=self._place.partition,
            offset=bad.offset,
        )

    def _send(self, bad: Sequence[BadValue]) -> None:
        """Write dead letters and wait until they are stored."""
        # Only here: tasks without bad values load no producer.
        from quorumlog.clients.consumer.record import ConsumerRecord
        from quorumlog.processing import dead_letter_headers
        from quorumlog.spark.process_client import client_of

        topic = self.options.dead_letter_topic
        assert topic is not None, "the options have a topic for mode=deadletter"
        deadline_ms = now_ms() + self._timeout_ms
        client = client_of(self._access, connect_timeout_ms=self._timeout_ms)
        left_ms = max(deadline_ms - now_ms(), DELIVERY_TIMEOUT_MS_MIN)
        with client.producer(delivery_timeout_ms=left_ms, max_block_ms=left_ms) as producer:
            deliveries = []
            for each in bad:
                record = ConsumerRecord(
                    topic=self._place.topic,
                    partition=self._place.partition,
                    offset=each.offset,
                    timestamp_ms=each.timestamp_ms,
                    key=each.key,
                    value=each.value,
                    headers=each.headers,
                )
                delivery = producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=dead_letter_headers(record, self._error(each)),
                    timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
                )
                deliveries.append(delivery)
            for delivery in deliveries:
                delivery.result()
