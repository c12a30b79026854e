"""The reaction of a task to values that do not decode: fail, drop or dead letter.

A dead letter is written before the batch that lacks it goes to Spark, so none is lost. Spark may
run a task again, and a DataFrame as often as it is used; each run writes its dead letters again.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quorumlog.errors import UndecodableValue
from quorumlog.ids import TopicPartition
from quorumlog.spark.options import BadValueMode, ValueOptions

LOGGED_MAX: Final = 10
"""Bad values that a task logs one by one; the others only count."""

logger = logging.getLogger(__name__)


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
        self, options: ValueOptions, bootstrap: Sequence[str], place: TopicPartition
    ) -> None:
        self.options = options
        self._bootstrap = bootstrap
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
        """Write dead letters and wait until they are stored. A client of its own, since a task may
        end at any point: batches with a bad value are few."""
        # Only here: tasks without bad values load no producer.
        import quorumlog
        from quorumlog.clients.consumer.record import ConsumerRecord
        from quorumlog.processing import dead_letter_headers

        topic = self.options.dead_letter_topic
        assert topic is not None, "the options have a topic for mode=deadletter"
        with quorumlog.connect(",".join(self._bootstrap)) as log, log.producer() as producer:
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
