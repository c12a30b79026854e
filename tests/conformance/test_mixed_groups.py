"""Groups with members of several clients: they share the partitions and each record is read
once."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from quorumlog.clients.blocking.group_consumer import GroupConsumer

from .clients.registry import opened
from .cluster import Cluster, ThreeNodes
from .driving import WITHIN_S, Driver, Found, GroupProtocol, Member

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # clients litter
]

MakeTopic = Callable[..., str]
PARTITIONS = 8
OURS = "quorumlog"


class OurMember:
    """The quorumlog consumer, by gRPC, as a `Member`."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self._consumer = consumer

    def poll(self, within_s: float) -> list[Found]:
        return [
            Found(
                partition=record.partition,
                offset=record.offset,
                value=record.value,
                timestamp_ms=record.timestamp_ms,
            )
            for record in self._consumer.poll(timeout_ms=int(within_s * 1000))
        ]

    def owned(self) -> set[int]:
        return {partition for _, partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()


@pytest.fixture
def join(
    cluster: Cluster, tmp_path: Path
) -> Iterator[Callable[[str, str, GroupProtocol], tuple[Member, Callable[[], None]]]]:
    """Return a function that adds a member of the named client to the group, with its exit
    stack."""
    if not isinstance(cluster, ThreeNodes):
        pytest.skip("excluded: the quorumlog client does not connect to Kafka")
    drivers: dict[str, Driver] = {}
    with ExitStack() as clients, ExitStack() as members:

        def driver(name: str) -> Driver:
            if name not in drivers:
                folder = tmp_path / name
                folder.mkdir()
                drivers[name] = clients.enter_context(
                    opened(name, cluster.bootstrap, folder, cluster.security)
                )
            return drivers[name]

        @contextmanager
        def ours(topic: str) -> Iterator[OurMember]:
            with cluster.log() as log, log.group_consumer(topic, topic) as consumer:
                yield OurMember(consumer)

        def make(
            name: str, topic: str, protocol: GroupProtocol
        ) -> tuple[Member, Callable[[], None]]:
            stack = members.enter_context(ExitStack())
            if name == OURS:
                return stack.enter_context(ours(topic)), stack.close
            member = driver(name).member(topic, topic, protocol=protocol)
            return stack.enter_context(member), stack.close

        yield make


def settle(members: Sequence[Member]) -> None:
    """Poll all members until each has partitions and every partition has an owner."""
    end = time.monotonic() + 2 * WITHIN_S
    while True:
        owned = [member.owned() for member in members]
        if all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS)):
            return
        assert time.monotonic() < end, f"after {2 * WITHIN_S} s they own {owned}"
        for member in members:
            assert member.poll(0.1) == []


def read(members: Sequence[Member], count: int) -> list[tuple[int, bytes | None]]:
    """Return the records that all members read, once there are `count` of them."""
    found: list[Found] = []
    end = time.monotonic() + WITHIN_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records in {WITHIN_S} s"
        for member in members:
            polled = member.poll(0.1)
            assert {one.partition for one in polled} <= member.owned()
            found += polled
    return sorted((one.partition, one.value) for one in found)


def share(cluster: ThreeNodes, topic: str, members: Sequence[Member], value: bytes) -> None:
    """Write a record to each partition: the partition's owner reads it once."""
    settle(members)
    with cluster.log() as log, log.producer() as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, value, partition=partition)
    assert read(members, PARTITIONS) == [(number, value) for number in range(PARTITIONS)]
    for member in members:
        member.commit()


@pytest.mark.suite("quorumlog")
@pytest.mark.parametrize(
    "members",
    [
        pytest.param(
            [("confluent-kafka", "classic"), ("kafka-python", "classic"), ("kcat", "classic")],
            id="classic",
        ),
        pytest.param(
            [("confluent-kafka", "consumer"), (OURS, "consumer"), ("confluent-kafka", "consumer")],
            id="KIP-848",
        ),
        pytest.param(
            [("confluent-kafka", "consumer"), ("kafka-python", "classic"), (OURS, "consumer")],
            id="both",
        ),
    ],
)
def test_each_record_is_read_once_while_clients_join_and_leave(
    cluster: Cluster,
    join: Callable[[str, str, GroupProtocol], tuple[Member, Callable[[], None]]],
    topic: MakeTopic,
    members: Sequence[tuple[str, GroupProtocol]],
) -> None:
    assert isinstance(cluster, ThreeNodes)
    name = topic(partitions=PARTITIONS)
    present: list[tuple[Member, Callable[[], None]]] = []
    values = (b"%d" % number for number in itertools.count())
    for client, protocol in members:
        present.append(join(client, name, protocol))
        share(cluster, name, [member for member, _ in present], next(values))
    while len(present) > 1:
        _, leave = present.pop(0)
        leave()
        share(cluster, name, [member for member, _ in present], next(values))
