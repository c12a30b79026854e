"""Short runs of a cluster of three nodes with pipelined producers, by name.

They reach in seconds of virtual time what seeds of the level reach in a minute: runs of every kind,
on a cluster with few other faults.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from quorumlog.simulation.fault_options import Faults
from quorumlog.simulation.world import SimWorld

from ...cluster.liveness import CONVERGE_MS, is_whole
from ...cluster.options import ClusterOptions, TopicPlan, Workload
from ...faults.cluster_faults import NO_FAULTS
from ..node.level import Run, judge, settle
from .level import SINGLE, Pipelines
from .run_faults import PAUSE_MS, RunFault, RunFaultInjector

SPAN_MS: Final = 6_000
QUICK: Final = Workload(
    producers=1,
    readers=0,
    burst_max=2,
    pause_ms=(2, 15),
    value_size_max=100,
    linger_ms=0,
    batch_size=1_000,
    compression="none",
    delivery_timeout_ms=10_000,
    records_max=20,  # of the producers that do not pipeline
    request_timeout_ms=3_000,
)
TOPICS: Final = (
    TopicPlan(name="strict", partitions=2, replication=3, min_isr=2, flush_policy="replicated"),
    SINGLE,
)
OPTIONS: Final = ClusterOptions(
    controllers=3,
    brokers=3,
    is_combined=True,
    racks=0,
    election_timeout_ms=600,
    session_timeout_ms=1_000,
    lag_time_ms_max=3_000,
    topics=TOPICS,
    has_kafka=True,
)


def play(
    kinds: Sequence[RunFault],
    *,
    seed: int = 1,
    faults: Faults | None = None,
    pause_ms: tuple[int, int] = PAUSE_MS,
    inline_bytes_max: int = 2 << 20,  # the default
) -> dict[str, int]:
    """Play a scenario with these faults; return the counts of its runs. Raises Violation."""
    with SimWorld(seed, faults=faults or Faults()) as world:
        entropy = world.entropy.stream("scenario")
        run = Run.of(
            world, entropy, options=OPTIONS, fault_plan=NO_FAULTS, injector=RunFaultInjector
        )
        run.workload = QUICK
        for node in run.cluster.nodes:
            storage = replace(node.config.storage, inline_write_bytes_max=inline_bytes_max)
            node.config = replace(node.config, storage=storage)
        pipelines, injector = Pipelines(run), run.fault_injector
        assert isinstance(injector, RunFaultInjector), f"{injector}"
        injector.kinds = list(kinds)
        injector.burst_fails = 0.4
        injector.pause_ms = pause_ms
        run.start()
        end_ms = world.now_ms() + SPAN_MS
        while world.now_ms() < end_ms:
            run.step()
            injector.step()
        injector.end_all(run.cluster.nodes)
        run.wait(lambda: is_whole(run.cluster), CONVERGE_MS, "every replica is in sync")
        stored = settle(run)
        pipelines.judge(stored)
        judge(run, stored)
        return pipelines.facts()


def pipelines_without_faults() -> None:
    """Play pipelines on a healthy cluster."""
    play(())


def pipelines_on_a_full_disk() -> None:
    """Let writes of runs find no space; some writes are short."""
    play((RunFault.NO_SPACE,), seed=5, faults=replace(Faults(), short_write=0.2))


def pipelines_without_controllers() -> None:
    """Take the controllers from leaders, which lose their leadership, again and again."""
    play((RunFault.LAPSE,), seed=3)


def pipelines_under_elections() -> None:
    """Move the leadership of partitions to brokers that clients do not expect."""
    play((RunFault.LEADER,), seed=4, pause_ms=(50, 400))


def pipelines_beside_the_lane() -> None:
    """Write all but the smallest batches in the write lane, so that queues are often busy."""
    play((), seed=5, inline_bytes_max=200)


PIPELINE_SCENARIOS: Final[Mapping[str, Callable[[], None]]] = {
    scenario.__name__: scenario
    for scenario in (
        pipelines_without_faults,
        pipelines_on_a_full_disk,
        pipelines_without_controllers,
        pipelines_under_elections,
        pipelines_beside_the_lane,
    )
}
