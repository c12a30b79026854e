"""A transaction shard with drivers and tasks of staged commits."""

from collections.abc import Mapping, Sequence

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.broker.transactions.formats import decode, encode
from quorumlog.broker.transactions.records import (
    FreeProducerId,
    ProducerIdForgotten,
    StagedAttempt,
    StagedName,
    StagedRecord,
    TransactionRecord,
)
from quorumlog.broker.transactions.requests import (
    AbortStage,
    AddPartitions,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    KeepAttemptAlive,
    SealAttempt,
    SealedPartition,
    VerifyPartitions,
)
from quorumlog.ids import ProducerIdentity

from .shard_play import A, ShardPlay, names_of

NAME = "spark/query/"
STAGE_MS = 900_000


class StagePlay(ShardPlay):
    """The requests of drivers and tasks, of one name unless stated."""

    def begin(
        self,
        number: int,
        write: int,
        *,
        task: int = 0,
        attempt: int | None = None,
        name: str = NAME,
    ) -> ProducerIdentity | CommittedBatch:
        return self.ask(
            BeginAttempt(
                transactional_id=name,
                number=number,
                write_id=write,
                task=task,
                attempt=task if attempt is None else attempt,
                timeout_ms=STAGE_MS,
            )
        )

    def opened(
        self,
        number: int,
        write: int,
        *partitions: tuple[str, int],
        task: int = 0,
        attempt: int | None = None,
        name: str = NAME,
    ) -> ProducerIdentity:
        """A task attempt with partitions."""
        producer = self.begin(number, write, task=task, attempt=attempt, name=name)
        assert isinstance(producer, ProducerIdentity)
        self.add_staged(producer, *partitions, name=name)
        return producer

    def add_staged(
        self, producer: ProducerIdentity, *partitions: tuple[str, int], name: str = NAME
    ) -> list[str]:
        added = self.ask(
            AddPartitions(transactional_id=name, producer=producer, partitions=partitions)
        )
        return names_of(added.errors)

    def verify_staged(self, producer: ProducerIdentity, *partitions: tuple[str, int]) -> list[str]:
        verified = self.ask(
            VerifyPartitions(transactional_id=NAME, producer=producer, partitions=partitions)
        )
        return names_of(verified.errors)

    def seal(
        self,
        producer: ProducerIdentity,
        counts: Mapping[tuple[str, int], int],
        *,
        name: str = NAME,
    ) -> None:
        self.ask(
            SealAttempt(
                transactional_id=name,
                producer=producer,
                partitions=tuple(
                    SealedPartition(
                        topic=topic, partition=partition, count=count, last_sequence=count - 1
                    )
                    for (topic, partition), count in counts.items()
                ),
            )
        )

    def sealed(
        self,
        number: int,
        write: int,
        *partitions: tuple[str, int],
        task: int = 0,
        attempt: int | None = None,
        name: str = NAME,
    ) -> ProducerIdentity:
        """A task attempt with ten records in each partition."""
        partitions = partitions or (A,)
        producer = self.opened(number, write, *partitions, task=task, attempt=attempt, name=name)
        self.seal(producer, dict.fromkeys(partitions, 10), name=name)
        return producer

    def keep_alive(self, producer: ProducerIdentity) -> None:
        self.ask(KeepAttemptAlive(transactional_id=NAME, producer=producer))

    def commit(
        self, number: int, write: int, winners: Sequence[ProducerIdentity], *, name: str = NAME
    ) -> Ticket:
        """The commit of these attempts of the tasks 0, 1, ..."""
        return self.submit(
            CommitStage(
                transactional_id=name,
                number=number,
                write_id=write,
                attempts=tuple(
                    CommittedAttempt(task=task, producer=producer)
                    for task, producer in enumerate(winners)
                ),
            )
        )

    def committed(self, number: int, write: int, *, name: str = NAME) -> None:
        """A batch of one task that is committed and visible."""
        ticket = self.commit(number, write, [self.sealed(number, write, name=name)], name=name)
        self.mark_all()
        assert self.answer(ticket).is_visible

    def abort(
        self, number: int, write: int, producer: ProducerIdentity | None = None, *, name: str = NAME
    ) -> CommittedBatch | None:
        return self.ask(
            AbortStage(transactional_id=name, number=number, write_id=write, producer=producer)
        )

    def mark_all(self) -> None:
        """Report every marker that was started."""
        effects, self.effects = self.effects, []
        for effect in effects:
            self.mark(effect)

    def outcomes(self) -> dict[int, bool]:
        """The producer ids with a marker to write, and whether it commits."""
        return {effect.producer.producer_id: effect.is_commit for effect in self.effects}

    def store_staged(self, record: StagedRecord) -> None:
        """Put a record into the log and load it."""
        self.log.append(encode(record))
        self.reload()

    def newest_id(self) -> TransactionRecord | None:
        """The newest record of a producer id."""
        return [
            record
            for record in (decode(key, value) for key, value in self.log)
            if isinstance(record, StagedAttempt | FreeProducerId | ProducerIdForgotten)
        ][-1]

    def newest_name(self, name: str = NAME) -> StagedName:
        """The newest record of a name."""
        records = [decode(key, value) for key, value in self.log]
        return [
            record
            for record in records
            if isinstance(record, StagedName) and record.transactional_id == name
        ][-1]
