"""What retention is told of groups: by their coordinators, whichever node asks."""

import pytest

from quorumlog.broker.groups.shell.committed import SILENT_MS
from quorumlog.errors import CoordinatorNotAvailable, QuorumlogError
from quorumlog.runtime import Runtime

from ..whole_nodes import Cluster
from .coordinated import (
    GROUP,
    TAKEN,
    asked,
    cluster,
    commit,
    coordinator,
    leader,
    made,
    make_topic,
    on,
)


def told(nodes: Cluster, number: int, log: str = "t-0", group: str = GROUP) -> int | None:
    """What the housekeeping of a node is told."""

    async def main(runtime: Runtime) -> int | None:
        directory = nodes.nodes[number].parts.directory
        assert directory is not None
        return await directory.housekeeping.committed(log, group)

    return on(nodes, number, main)


def test_every_node_is_told_what_the_group_has_committed() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        assert asked(nodes, made(nodes), commit(7)) == TAKEN
        assert {told(nodes, number) for number in nodes.numbers} == {7}
        assert told(nodes, 1, group="nobody") is None
        assert told(nodes, 1, log="no-such-topic-3") is None


def test_before_there_are_groups_asking_makes_none() -> None:
    with cluster() as nodes:
        nodes.start()
        assert told(nodes, 1) is None
        assert not coordinator(nodes, 1).has_topic


def test_a_group_of_which_nobody_tells_is_asked_for_again_after_a_while() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        assert asked(nodes, old, commit(7)) == TAKEN
        other = next(number for number in nodes.numbers if number != old)
        nodes.crash(old)
        with pytest.raises(QuorumlogError):
            told(nodes, other)
        nodes.until(lambda: leader(nodes) not in (0, old))
        with pytest.raises(CoordinatorNotAvailable, match="did not answer lately"):
            told(nodes, other)
        nodes.world.run_for(SILENT_MS)
        assert told(nodes, other) == 7
