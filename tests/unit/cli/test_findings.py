"""Findings about unhealthy replicas, partitions and brokers."""

from typing import Any

import pytest

from quorumlog.clients.admin.descriptions import Broker, Partition
from quorumlog.clients.admin.fenced_brokers import BrokerProbe, fencing_cause
from quorumlog.clients.admin.findings import (
    fenced,
    not_in_sync,
    not_registered,
    under_min_isr,
    unstable,
)
from quorumlog.clients.admin.partitions import PartitionReplicas, Replica
from quorumlog.clients.admin.transactions import OpenTransaction, TransactionalId
from quorumlog.errors import OutcomeUnknown, QuorumlogError
from quorumlog.ids import ProducerIdentity

from .descriptions import partition


def broker(number: int, **fields: Any) -> Broker:
    defaults: dict[str, Any] = {
        "id": number,
        "grpc_address": f"b{number}:9094",
        "rack": "",
        "fenced": False,
        "broker_epoch": 40,
        "stopping": False,
    }
    return Broker(**(defaults | fields))


def brokers(**fields: Any) -> dict[int, Broker]:
    """Return three brokers, the last one with these fields."""
    return {1: broker(1), 2: broker(2), 3: broker(3, **fields)}


def described(reason: str = "", error: QuorumlogError | None = None) -> PartitionReplicas:
    return PartitionReplicas(
        topic="t",
        partition=0,
        leader=1,
        high_watermark=5,
        min_isr=2,
        replicas=(
            Replica(broker=3, log_end_offset=3, caught_up_ms_ago=9, in_sync=False, reason=reason),
        ),
        error=error,
    )


@pytest.mark.parametrize(
    ("state", "seen", "known", "words"),
    [
        (partition(), described(), {1: broker(1)}, ["3 is not registered", "--drain 3"]),
        (partition(), described(), brokers(fenced=True), ["3 is fenced", "explain fenced 3"]),
        (partition(), described(), brokers(stopping=True), ["3 is stopping", "catches up after"]),
        (
            partition(leader=None, isr=(), elr=(1, 2), replicas=(3, 1, 2)),
            None,
            {3: broker(3)},
            ["no leader", "explain under-min-isr"],
        ),
        (
            partition(),
            described(error=OutcomeUnknown("cut")),
            brokers(),
            ["did not report", "(cut)"],
        ),
        (partition(), None, brokers(), ["did not report"]),
        (
            partition(),
            described("broker 3 is 7 behind"),
            brokers(),
            ["3 is 7 behind", "check the log"],
        ),
        (
            partition(adding=(3,)),
            described("broker 3 is 7 behind"),
            brokers(),
            ["3 is 7 behind", "A reassignment adds the replica", "replication.throttled.rate"],
        ),
        (partition(), described(""), brokers(), ["has just joined the ISR"]),
    ],
)
def test_replica_out_of_sync_is_reported_with_its_reason_and_the_remedy(
    state: Partition, seen: PartitionReplicas | None, known: dict[int, Broker], words: list[str]
) -> None:
    finding = next(iter(not_in_sync("t", state, seen, known)))
    assert (finding.topic, finding.partition, finding.broker) == ("t", 0, 3)
    assert finding.text.startswith("t-0: broker 3 ") or "no leader" in finding.text
    for word in words:
        assert word in finding.text


def test_replicas_in_sync_are_not_reported() -> None:
    assert list(not_in_sync("t", partition(isr=(1, 2, 3)), None, brokers())) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            partition(isr=(1,)),
            [
                "1 replica in sync (broker 1)",
                "min.insync.replicas is 2",
                "broker 2 (behind), broker 3 (fenced)",
            ],
        ),
        (
            partition(replicas=(1,), isr=(1,)),
            ["The partition has only 1 replica", "partitions reassign t -p 0 --replication 2"],
        ),
        (
            partition(leader=None, isr=(), elr=(1, 3)),
            ["no leader:", "Start brokers 1 or 3, which has all acknowledged records"],
        ),
        (
            partition(leader=None, isr=(), last_known_elr=(2,)),
            ["broker 2 had them last", "Start broker 2", "--unclean"],
        ),
        (
            partition(leader=None, isr=()),
            ["no replica is known to have all", "elect-leader t -p 0 --unclean"],
        ),
    ],
)
def test_partition_under_its_min_isr_is_reported_with_the_missing_brokers(
    state: Partition, words: list[str]
) -> None:
    finding = under_min_isr("t", state, brokers(fenced=True))
    assert (finding.topic, finding.partition) == ("t", 0)
    for word in ["t-0: ", *words]:
        assert word in finding.text, finding.text


@pytest.mark.parametrize(
    ("state", "seen", "words"),
    [
        (
            {},
            BrokerProbe(controller=1, metadata_offset=50),
            "is not fenced.",
        ),
        ({"fenced": True}, BrokerProbe(is_refused=True), "is down: nothing listens at b3:9094."),
        (
            {"fenced": True},
            BrokerProbe(is_refused=True),
            "`quorumlog cluster start 3`; its log has the reason, such as a failed disk.",
        ),
        (
            {"fenced": True, "stopping": True},
            BrokerProbe(is_refused=True),
            "Broker 3 was shut down: nothing listens",
        ),
        (
            {"fenced": True},
            BrokerProbe(error="b3:9094: no answer within 2,000 ms; check that"),
            "does not answer at b3:9094 (no answer within 2,000 ms): the process is paused",
        ),
        ({"stopping": True}, BrokerProbe(controller=1, metadata_offset=50), "is shutting down"),
        (
            {"fenced": True},
            BrokerProbe(controller=1, metadata_offset=39),
            "has applied offset 39 and registered at 40. Wait",
        ),
        (
            {"fenced": True},
            BrokerProbe(metadata_offset=40),
            "has no session with the active controller",
        ),
        (
            {"fenced": True},
            BrokerProbe(controller=2, metadata_offset=40),
            "has a session with controller 2. Retry",
        ),
    ],
)
def test_fenced_broker_is_reported_with_the_result_of_a_call_to_it(
    state: dict[str, Any], seen: BrokerProbe, words: str
) -> None:
    finding = fenced(fencing_cause(broker(3, **state), seen))
    assert finding.broker == 3
    assert finding.text.startswith("Broker 3 ")
    assert words in finding.text


def test_unknown_broker_is_reported_with_the_known_ones() -> None:
    assert "registered brokers: 1, 2." in not_registered(9, [2, 1]).text
    assert "registered brokers: none." in not_registered(9, []).text


def test_finding_of_a_held_last_stable_offset_has_its_age_and_the_command() -> None:
    held = OpenTransaction(
        topic="t",
        partition=0,
        first_offset=1_329,
        producer=ProducerIdentity(7, 0),
        coordinator_epoch=-1,
        last_timestamp_ms=0,
    )
    listed = TransactionalId(
        name="settle 2",
        state="Ongoing",
        coordinator=1,
        producer_id=7,
        producer_epoch=-1,
        started_ms=1_000,
        timeout_ms=0,
        partitions=(),
    )
    (finding,) = unstable({("t", 0): (1_329, 2_400)}, [held], {7: listed}, [], now_ms=638_500)
    assert finding.why == (
        "the last stable offset 1,329 is 1,071 offsets below the high watermark 2,400: a "
        "transaction of settle 2 is open from 1,329 for 10 min 37 s (Ongoing)"
    )
    assert finding.remedy == "Wait for the producer or its transaction timeout, or abort it"
    assert finding.text.endswith("or abort it: `quorumlog transactions abort 'settle 2'`.")
