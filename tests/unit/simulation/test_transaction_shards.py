"""The checker of coordinators' decisions accepts correct decisions and names the broken rule."""

from dataclasses import replace
from unittest import mock

import pytest
from tests.simulation.checkers.transaction_shards import SUCCESSOR_EVERY, check_transaction_shards
from tests.simulation.checkers.violation import Violation
from tests.unit.broker.transactions.shard_play import START_MS, TOPICS, image_of

from quorumlog.broker.coordinator.decision import Answered, ShardDecision, Ticket
from quorumlog.broker.transactions.config import TransactionConfig
from quorumlog.broker.transactions.records import TransactionMetadata
from quorumlog.broker.transactions.requests import AddPartitions, EndTransaction, InitProducerId
from quorumlog.broker.transactions.shard import TransactionShard
from quorumlog.broker.transactions.shell import transaction_coordinator_shard
from quorumlog.broker.transactions.transaction import TransactionMachine
from quorumlog.ids import ProducerIdentity

IMAGE = image_of(TOPICS)
TOPIC = next(iter(TOPICS))


def play(ids: int) -> list[Violation]:
    """Begin and commit a transaction of each id; return the violations."""
    violations: list[Violation] = []
    with check_transaction_shards(violations):
        drawn = iter(range(1, 1_000))
        kind: type[TransactionShard] = vars(transaction_coordinator_shard)["TransactionShard"]
        shard = kind(TransactionConfig(), lambda: next(drawn))
        shard.loaded(IMAGE, START_MS)
        for number in range(ids):
            name, now_ms = f"id-{number}", START_MS + 3 * number
            begun = InitProducerId(transactional_id=name, timeout_ms=1_000)
            (reply,) = shard.handle(Ticket(0), begun, IMAGE, now_ms).replies
            assert isinstance(reply, Answered)
            producer: ProducerIdentity = reply.outcome
            added = AddPartitions(
                transactional_id=name, producer=producer, partitions=((TOPIC, 0),)
            )
            shard.handle(Ticket(1), added, IMAGE, now_ms + 1)
            ended = EndTransaction(
                transactional_id=name, producer=producer, commit=True, bumps_epoch=True
            )
            shard.handle(Ticket(2), ended, IMAGE, now_ms + 2)
        shard.expire(START_MS + 3 * ids, IMAGE)
    return violations


def test_correct_decisions_break_no_rule() -> None:
    assert not play(SUCCESSOR_EVERY)


def test_state_that_is_not_stored_is_found() -> None:
    honest = TransactionMachine.end

    def end(self: TransactionMachine, *arguments: object) -> object:
        decision = honest(self, *arguments)  # type: ignore[arg-type]
        self.metadata = replace(self.metadata, timeout_ms=5)
        return decision

    with mock.patch.object(TransactionMachine, "end", end):
        found = play(SUCCESSOR_EVERY)
    assert found[0].invariant == "StoredState"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"timeout_ms": 5}, "Transition"),
        ({"producer_epoch": 7}, "Transition"),
        ({"partitions": frozenset[object]()}, "Transition"),
        ({"started_ms": START_MS + 9, "updated_ms": START_MS + 9}, "Transition"),
    ],
)
def test_record_that_may_not_follow_is_found(changes: dict[str, object], rule: str) -> None:
    honest = TransactionMachine.end

    def end(self: TransactionMachine, *arguments: object) -> object:
        decision = honest(self, *arguments)  # type: ignore[arg-type]
        (record,) = decision.records
        assert isinstance(record, TransactionMetadata)
        changed = replace(record, **changes)  # type: ignore[arg-type]
        return ShardDecision((changed,), decision.replies, decision.effects)

    with mock.patch.object(TransactionMachine, "end", end):
        assert play(1)[0].invariant == rule


def test_decision_without_its_markers_is_found() -> None:
    honest = TransactionMachine.end

    def end(self: TransactionMachine, *arguments: object) -> object:
        decision = honest(self, *arguments)  # type: ignore[arg-type]
        return ShardDecision(decision.records, decision.replies)

    with mock.patch.object(TransactionMachine, "end", end):
        assert play(1)[0].invariant == "Markers"
