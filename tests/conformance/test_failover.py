"""Failover of a leader while clients write and read: they continue and no record is lost."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from .cluster import Cluster, ThreeNodes, until
from .driving import Driver, Refused, beginnings, read
from .records import contents, numbered

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # clients litter
]

MakeTopic = Callable[..., str]
EACH = 50  # records of one call


@pytest.fixture
def nodes(cluster: Cluster) -> ThreeNodes:
    if not isinstance(cluster, ThreeNodes):
        pytest.skip("excluded: one node cannot fail over")
    return cluster


def all_in_sync(nodes: ThreeNodes, topic: str) -> bool:
    with nodes.log() as log:
        described = log.admin.describe_topic(topic)
    return all(len(each.isr) == 3 for each in described.partitions)


def until_reported(what: str, is_reported: Callable[[], bool]) -> None:
    """Call until the client returns an expected result; calls to the dead broker may fail
    before."""

    def holds() -> bool:
        try:
            return is_reported()
        except Refused:
            return False

    until(f"{what} is reported", holds)


@pytest.mark.needs("idempotent")
def test_an_idempotent_producer_survives_the_death_of_the_leader(
    client: Driver, nodes: ThreeNodes, topic: MakeTopic
) -> None:
    name = topic(min_insync_replicas="2")
    leader = nodes.leader(name, 0)
    rounds = 0
    enough = threading.Event()

    def write() -> int:
        done = 0
        with client.writer(idempotent=True) as writer:
            while not enough.is_set():
                writer.send(name, numbered(EACH, since=done))
                done += EACH
                nonlocal rounds
                rounds += 1
        return done

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        try:
            until("some is written", lambda: rounds >= 5 or writing.done())
            nodes.nodes[leader].kill()
            before = rounds
            until("it goes on", lambda: rounds >= before + 5 or writing.done())
        finally:
            enough.set()
        done = writing.result(60)
    assert nodes.leader(name, 0) != leader
    nodes.nodes[leader].start()
    with client.reader(name, {0: "beginning"}) as reader:
        found = read(reader, done)
        found += reader.poll(0.5)
    assert contents(found) == contents(numbered(done))
    until("all replicas are in sync", lambda: all_in_sync(nodes, name))


def test_a_reader_survives_the_death_of_the_leader(
    client: Driver, nodes: ThreeNodes, topic: MakeTopic
) -> None:
    name = topic(partitions=3)
    leader = nodes.leader(name, 0)
    starts = beginnings(3)
    with client.writer() as writer, client.reader(name, starts) as reader:
        writer.send(name, [one for at in range(3) for one in numbered(20, partition=at)])
        found = read(reader, 60)
        nodes.nodes[leader].kill()
        try:
            writer.send(
                name, [one for at in range(3) for one in numbered(20, partition=at, since=20)]
            )
            found += read(reader, 60)
        finally:
            nodes.nodes[leader].start()
    for partition in range(3):
        mine = [one for one in found if one.partition == partition]
        assert contents(mine) == contents(numbered(40))
    until("all replicas are in sync", lambda: all_in_sync(nodes, name))


@pytest.mark.needs("admin")
def test_the_metadata_has_the_new_leader_and_the_lost_broker(
    client: Driver, nodes: ThreeNodes, topic: MakeTopic
) -> None:
    name = topic()
    leader = nodes.leader(name, 0)
    with client.admin() as admin:
        assert admin.describe(name)[0].leader == leader
        nodes.nodes[leader].kill()
        try:
            until_reported(
                "another leader", lambda: admin.describe(name)[0].leader not in (leader, -1)
            )
            until_reported(
                "no broker that is dead", lambda: leader not in admin.brokers().addresses
            )
            assert admin.describe(name)[0].leader == nodes.leader(name, 0)
        finally:
            nodes.nodes[leader].start()
        until_reported("the broker that is back", lambda: leader in admin.brokers().addresses)
    until("all replicas are in sync", lambda: all_in_sync(nodes, name))
