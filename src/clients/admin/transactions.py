"""Transactions for operators: transactional ids, and the open transactions of partitions."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...errors import TransactionalIdNotFound
from ...ids import ProducerIdentity, TopicPartition
from ...proto import groups_pb2
from ...proto import transactions_pb2 as pb
from ...runtime.error_detail import decode_error
from ...services import (
    TRANSACTIONS_ABORT,
    TRANSACTIONS_ABORT_HANGING,
    TRANSACTIONS_DESCRIBE,
    TRANSACTIONS_DESCRIBE_PRODUCERS,
    TRANSACTIONS_LIST,
)
from ...staged_names import split_attempt_id
from ..connection import Connection
from ..offsets import PartitionLike
from ..producer_identity import identity_message
from ..retry import is_retriable_change
from ..topology import PartitionLeader, invalid_response, leaderless

PARTS_MAX = 1_000  # partitions of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalId:
    """The state of a transactional id at its coordinator."""

    name: str
    state: str  # "Empty", "Ongoing", "PrepareCommit", "CompleteCommit", ...
    producer_id: int
    producer_epoch: int  # -1 in a list
    started_ms: int  # of its open or last transaction, milliseconds since 1970; -1: none
    timeout_ms: int  # 0 in a list
    partitions: tuple[TopicPartition, ...]  # of its open transaction; empty in a list
    coordinator: int  # node id

    @property
    def staged_name(self) -> str | None:
        """The name of the staged commits that it is a task attempt of; None: it is the id of a
        producer."""
        found = split_attempt_id(self.name)
        return found[0] if found is not None and found[1] == self.producer_id else None

    @property
    def is_open(self) -> bool:
        """True if a transaction is open and not decided."""
        return self.state == "Ongoing"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction without a marker in a partition, by the partition's leader."""

    topic: str
    partition: int
    first_offset: int
    producer: ProducerIdentity
    coordinator_epoch: int  # of the producer's last marker, -1: none
    last_timestamp_ms: int  # of the producer's last batch, milliseconds since 1970; -1: unknown


async def list_transactions(
    connection: Connection, states: Collection[str], open_for_ms_min: int
) -> list[TransactionalId]:
    """Return transactional ids by name; raise the error of a broker that did not list its ids."""

    async def attempt(remaining_ms: int) -> pb.ListTransactionsResponse:
        answer = await connection.call_any(
            TRANSACTIONS_LIST,
            pb.ListTransactionsRequest(states=sorted(states), open_for_ms_min=open_for_ms_min),
            deadline_ms=connection.runtime.clock.now_ms() + remaining_ms,
        )
        if answer.errors:
            raise decode_error(answer.errors[0])
        return answer

    answer = await connection.repeat(attempt)
    return [_transactional_id(each) for each in answer.transactions]


async def describe_transactions(
    connection: Connection, names: Sequence[str]
) -> list[TransactionalId | TransactionalIdNotFound]:
    """Return each transactional id, or the error that it is not found, in order. The broker that
    gets the request sends one to each coordinator."""
    found: list[TransactionalId | TransactionalIdNotFound] = []
    for first in range(0, len(names), PARTS_MAX):
        asked = names[first : first + PARTS_MAX]

        async def attempt(
            remaining_ms: int, asked: Sequence[str] = asked
        ) -> list[TransactionalId | TransactionalIdNotFound]:
            answer = await connection.call_any(
                TRANSACTIONS_DESCRIBE,
                pb.DescribeTransactionsRequest(transactional_ids=asked),
                deadline_ms=connection.runtime.clock.now_ms() + remaining_ms,
            )
            if len(answer.results) != len(asked):
                raise invalid_response(
                    f"described {len(answer.results)} transactional ids for {len(asked)}"
                )
            return [_described(result) for result in answer.results]

        found += await connection.repeat(attempt)
    return found


async def describe_transaction(connection: Connection, name: str) -> TransactionalId:
    """Return a transactional id; raise TransactionalIdNotFound."""
    (found,) = await describe_transactions(connection, [name])
    if isinstance(found, TransactionalIdNotFound):
        raise found
    return found


async def abort_transaction(connection: Connection, name: str) -> None:
    """Abort the open transaction of a transactional id and fence its producer."""
    await connection.call_any(TRANSACTIONS_ABORT, pb.AbortTransactionRequest(transactional_id=name))


async def open_transactions(
    connection: Connection, leaders: Mapping[PartitionLike, int | None]
) -> list[OpenTransaction]:
    """Return the open transactions of partitions with these leaders, by partition and offset.

    Raises the error of a leader that does not answer, and NotLeaderOrFollower for a partition
    without a leader.
    """
    led: dict[int, list[PartitionLike]] = defaultdict(list)
    for place, leader in leaders.items():
        if leader is None:
            raise leaderless(*place)
        led[leader].append(place)
    calls = [
        _producers(connection, leader, places[first : first + PARTS_MAX])
        for leader, places in led.items()
        for first in range(0, len(places), PARTS_MAX)
    ]
    found = [each for part in await asyncio.gather(*calls) for each in part]
    return sorted(found, key=lambda each: (each.topic, each.partition, each.first_offset))


async def _producers(
    connection: Connection, leader: int, places: Sequence[PartitionLike]
) -> list[OpenTransaction]:
    answer = await connection.call_broker(
        leader,
        TRANSACTIONS_DESCRIBE_PRODUCERS,
        pb.DescribeProducersRequest(partitions=[_partition(place) for place in places]),
        retry_on=is_retriable_change,
    )
    if [(each.topic, each.partition) for each in answer.results] != list(places):
        raise invalid_response(f"described {len(answer.results)} partitions for {len(places)}")
    found = []
    for result in answer.results:
        if result.HasField("error"):
            raise decode_error(result.error)
        found += [
            OpenTransaction(
                topic=result.topic,
                partition=result.partition,
                first_offset=each.transaction_start,
                producer=ProducerIdentity(each.producer.producer_id, each.producer.producer_epoch),
                coordinator_epoch=each.coordinator_epoch,
                last_timestamp_ms=each.last_timestamp_ms,
            )
            for each in result.producers
            if each.transaction_start >= 0
        ]
    return found


async def find_hanging(
    connection: Connection, leaders: Mapping[PartitionLike, int | None]
) -> list[OpenTransaction]:
    """Return the open transactions of these partitions that no coordinator has, so that no marker
    will end them.

    Partitions are described before the coordinators are asked, and those found again afterwards: a
    transaction that ends in between is not hanging.
    """
    found = await open_transactions(connection, leaders)
    if not found:
        return []
    listed = await list_transactions(connection, (), 0)
    names = {each.producer_id: each.name for each in listed}
    known = dict.fromkeys(
        names[each.producer.producer_id] for each in found if each.producer.producer_id in names
    )
    described = await describe_transactions(connection, list(known))
    coordinated = {  # partitions to which a coordinator will write a marker
        (each.producer_id, *place)
        for each in described
        if isinstance(each, TransactionalId)
        for place in each.partitions
    }
    hanging = [
        each
        for each in found
        if (each.producer.producer_id, each.topic, each.partition) not in coordinated
    ]
    places = dict.fromkeys((each.topic, each.partition) for each in hanging)
    again = await open_transactions(connection, {place: leaders[place] for place in places})
    still = {(each.topic, each.partition, each.producer, each.first_offset) for each in again}
    return [
        each
        for each in hanging
        if (each.topic, each.partition, each.producer, each.first_offset) in still
    ]


async def abort_hanging(connection: Connection, found: OpenTransaction) -> None:
    """Write an abort marker for a hanging transaction."""
    request = pb.AbortHangingTransactionRequest(
        partition=_partition((found.topic, found.partition)),
        producer=identity_message(found.producer),
        coordinator_epoch=max(0, found.coordinator_epoch),
    )

    async def call(leader: PartitionLeader, timeout_ms: int) -> None:
        channel = connection.channel(leader.address)
        await channel.call(TRANSACTIONS_ABORT_HANGING, request, timeout_ms=timeout_ms)

    await connection.call_leader(found.topic, found.partition, call)


def _described(result: pb.TransactionDescription) -> TransactionalId | TransactionalIdNotFound:
    if not result.HasField("error"):
        return _transactional_id(result.transaction)
    error = decode_error(result.error)
    if isinstance(error, TransactionalIdNotFound):
        return error
    raise error


def _partition(place: PartitionLike) -> groups_pb2.GroupPartition:
    return groups_pb2.GroupPartition(topic=place[0], partition=place[1])


def _transactional_id(listing: pb.TransactionListing) -> TransactionalId:
    return TransactionalId(
        name=listing.transactional_id,
        state=listing.state,
        producer_id=listing.producer.producer_id,
        producer_epoch=listing.producer.producer_epoch,
        started_ms=listing.started_ms,
        timeout_ms=listing.timeout_ms,
        partitions=tuple(TopicPartition(each.topic, each.partition) for each in listing.partitions),
        coordinator=listing.coordinator,
    )
