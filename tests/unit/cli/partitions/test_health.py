"""The one-word health state of a partition."""

from typing import Any

import pytest

from quorumlog.clients.admin.descriptions import Partition, Topic
from quorumlog.clients.admin.health import STATES, needs_attention, states_of, summary


def partition(**fields: Any) -> Partition:
    settled: dict[str, Any] = {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "min_isr": 2,
        "elr": (),
        "last_known_elr": (),
        "adding": (),
        "removing": (),
        "recovering": False,
    }
    return Partition(**(settled | fields))


@pytest.mark.parametrize(
    ("fields", "states"),
    [
        ({}, []),
        ({"isr": (1, 2)}, ["under-replicated"]),
        ({"isr": (1,)}, ["under-min-isr", "under-replicated"]),
        (
            {"leader": None, "isr": (), "elr": (1,)},
            ["offline", "under-min-isr", "under-replicated"],
        ),
        ({"leader": 2}, ["led-elsewhere"]),
        ({"recovering": True}, ["recovering"]),
        ({"replicas": (4, 1, 2, 3), "adding": (4,), "removing": (3,)}, ["moving", "led-elsewhere"]),
        ({"replicas": (1, 2, 3), "isr": (1, 2), "removing": (3,)}, ["under-replicated", "moving"]),
    ],
)
def test_worst_state_of_a_partition_counts(fields: dict[str, Any], states: list[str]) -> None:
    assert states_of(partition(**fields)) == states
    assert needs_attention(states) == (states not in ([], ["led-elsewhere"]))


def test_summary_counts_every_state_including_empty_ones() -> None:
    topic = Topic(
        name="t",
        topic_id=b"",
        partitions=(partition(), partition(isr=(1,)), partition(isr=(1, 2), leader=2)),
        configs={},
    )
    counts = summary([topic])
    assert list(counts) == ["partitions", *STATES]
    assert {state: count for state, count in counts.items() if count} == {
        "partitions": 3,
        "under-min-isr": 1,
        "under-replicated": 2,
        "led-elsewhere": 1,
    }
