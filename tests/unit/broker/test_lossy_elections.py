"""Elections after a power cut, and their records of a possible loss, on simulated nodes."""

import logging

import pytest
from tests.kit.replica_cluster import Cluster, world

from quorumlog.clients.log import AsyncLog
from quorumlog.simulation import SimWorld

EVENT = "broker.leads_with_possible_loss"


def of_loss(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith(EVENT)]


def after_a_power_cut(sim: SimWorld, **configs: str) -> list[bytes | None]:
    """Cut the power of node 2, the only replica of "t", and restart it.

    Return its values after another append.
    """
    cluster = Cluster(sim)
    cluster.start()

    async def create(log: AsyncLog) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        await log.admin.create_topic("t", assignments=[[2]], configs=named)

    cluster.run(create)
    cluster.send(b"1")
    cluster.crash(2, power=True)
    cluster.start(2)
    cluster.send(b"2")
    return cluster.values(2, "t")


@pytest.mark.slow
def test_lone_replica_that_may_have_lost_records_leads_and_reports_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "quorumlog.broker")
    with world() as sim:
        values = after_a_power_cut(sim, flush_policy="replicated")
    assert values[-1] == b"2"
    [line] = of_loss(caplog)
    assert line.startswith(f"{EVENT} log=t-0 leader_epoch=2 log_end_offset=")


@pytest.mark.slow
def test_lone_replica_on_fsync_leads_again_without_a_report(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "quorumlog.broker")
    with world() as sim:
        assert after_a_power_cut(sim) == [b"1", b"2"]
    assert of_loss(caplog) == []
