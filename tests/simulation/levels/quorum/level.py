"""Level `quorum`: three or five whole members of a quorum and their clients, with faults.

The members run as they ship: storage, node, transport, on the simulated runtime. Clients write,
swap and read registers that the quorum's log replicates. *Safety*: faults of the network, the
disks, the processes and the clocks, and a changing voter set, while the invariants are checked.
*Liveness*: a connected majority is left alone and must elect and serve every client within a bound;
then all members are, and must converge. At the end the clients' history must be linearizable, every
log equal, and every data directory sound.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from quorumlog.raftlog.voters import VoterSet
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.links import apart
from quorumlog.simulation.world import NotReached, SimWorld
from quorumlog.testing.checkers import report

from ...checkers.linearizability import linearizability_anomalies
from ...checkers.models import Register
from ...checkers.quorum_logs import compare_logs
from ...cluster.quorum import QuorumCluster, QuorumMember, QuorumOptions
from ...faults.injector import STEP_MS
from ...faults.quorum_faults import QuorumFaultInjector, draw_fault_plan
from ...shrink.script import duration_ms_of, options_of
from .clients import Notes, RegisterClient, RegisterWorkload

SAFETY_MS: Final = 45_000
VIRTUAL_MS_MIN: Final = 60_000
FIRST_LEADER_MS: Final = 30_000  # bound of a cluster's start, with faults
SERVE_MS: Final = 30_000  # bound for a repaired majority to serve every client
CONVERGE_MS: Final = 60_000  # bound for a repaired cluster to converge
CLIENT_MACHINES: Final = 2
TASKS_EACH: Final = 2


def draw_options(entropy: SimEntropy) -> QuorumOptions:
    """Draw the configuration of the members."""
    election_ms = (600, 1_000, 1_500)[entropy.below(3)]
    has_small_snapshots = entropy.stream("snapshots").chance(0.4)
    return QuorumOptions(
        voters=3 if entropy.chance(0.6) else 5,
        spares=entropy.below(2),
        heartbeat_ms=election_ms // (4 + entropy.below(4)),
        election_timeout_ms=(election_ms, 2 * election_ms),
        snapshot_every_bytes=200 if has_small_snapshots else entropy.spread(4_000, 400_000),
        batch_bytes_max=entropy.spread(200, 500_000),
        tail_bytes_max=entropy.spread(1_000, 1_000_000),
        append_bytes_max=entropy.spread(500, 1_000_000),
        inflight_requests_max=entropy.spread(1, 128),
        snapshot_chunk_bytes=entropy.spread(500, 200_000),
    )


def draw_register_workload(entropy: SimEntropy) -> RegisterWorkload:
    """Draw the workload of the clients."""
    return RegisterWorkload(
        keys=entropy.spread(1, 40),
        pause_ms=((20, 100), (50, 300), (100, 1_000))[entropy.below(3)],
        timeout_ms=((100, 1_000), (1_000, 5_000))[entropy.below(2)],
        reads=entropy.uniform(0.2, 0.8),
        swaps=entropy.uniform(0.0, 0.6),
        value_size_max=(10, 200, 2_000)[entropy.below(3)],
        burst_max=entropy.spread(1, 8),
        operations_max=2_000,
    )


@dataclass(slots=True)
class Run:
    """The state of one run."""

    world: SimWorld
    cluster: QuorumCluster
    workload: RegisterWorkload
    entropy: SimEntropy
    notes: Notes = field(default_factory=Notes)

    @property
    def clients(self) -> list[str]:
        """The machines of the clients."""
        return [f"c{number}" for number in range(1, CLIENT_MACHINES + 1)]

    def start(self) -> None:
        """Start members and clients, and wait for a first leader."""
        self.cluster.start()
        for name in self.clients:
            self.world.node(name).spawn(partial(self._run_clients, name))
        self.wait(lambda: self.cluster.leader() is not None, FIRST_LEADER_MS, "a first leader")

    def wait(self, condition: Callable[[], bool], virtual_ms: int, why: str) -> None:
        """Let time pass until the condition holds; raises NotReached."""
        end_ms = self.world.now_ms() + virtual_ms
        while not condition():
            if self.world.now_ms() >= end_ms:
                raise NotReached(f"not within {virtual_ms} ms: {why}\n{self.describe()}")
            self.step()

    def step(self) -> None:
        """Let one step of time pass."""
        self.cluster.run(STEP_MS)
        for name in self.clients:
            client = self.world.node(name)
            if not client.alive:
                raise AssertionError(f"{name} ended: {client.exit_error!r}") from client.exit_error

    def describe(self) -> str:
        """Return the state of the members, a line each."""
        lines = []
        for member in self.cluster.members:
            node = member.node
            if node is None:
                lines.append(f"  {member.name}: alive={member.sim.alive} ends={member.ends}")
                continue
            status = node.status()
            lines.append(
                f"  {member.name}: {status.role} epoch={status.epoch} leader={status.leader}"
                f" log=[{status.log_start_offset}, {status.log_end_offset})"
                f" hw={status.high_watermark} applied={status.applied_end}"
                f" voters={[voter.node_id for voter in node.voters]} paused={member.is_paused}"
            )
            lines += [
                f"    {peer.member}: {peer.state} match={peer.log_end_offset}"
                for peer in (*status.voters, *status.observers)
                if status.is_leader
            ]
        return "\n".join(lines)

    async def _run_clients(self, name: str, runtime: Runtime) -> None:
        async with runtime.tasks.scope("clients") as scope:
            for number in range(TASKS_EACH):
                client = RegisterClient(
                    runtime=runtime,
                    name=f"{name}.{number}",
                    addresses=self.cluster.addresses,
                    workload=self.workload,
                    notes=self.notes,
                    entropy=self.entropy.stream(f"client/{name}/{number}"),
                    with_stream=number == 0,
                )
                scope.spawn(client.run(), name=client.name)
        await asyncio.Event().wait()


def play(world: SimWorld, *, bug: str = "", notes: Notes | None = None) -> dict[str, int]:
    """Run the scenario, with one of `BUGS`; raises AssertionError with a violation. The clients
    write their history into `notes`."""
    entropy = world.entropy.stream("scenario")
    options = options_of(world, "members", draw_options(entropy.stream("options")))
    cluster = QuorumCluster(world, options, entropy.stream("cluster"), bug=bug)
    drawn = draw_register_workload(entropy.stream("habits"))
    workload = options_of(world, "workload", drawn)
    run = Run(world, cluster, workload, entropy, notes or Notes())
    fault_plan = draw_fault_plan(entropy.stream("storm"))
    fault_injector = QuorumFaultInjector(
        cluster, fault_plan, entropy.stream("nemesis"), run.clients
    )
    run.start()
    safety_ms = duration_ms_of(world, "safety phase", SAFETY_MS)
    fault_injector.inject_until(world.now_ms() + safety_ms)
    heal_majority(run, fault_injector)
    heal_all(run, fault_injector)
    whole_ms = duration_ms_of(world, "run", VIRTUAL_MS_MIN)
    while world.now_ms() < whole_ms:
        run.step()
    settle(run)
    judge(run)
    return {
        "members": len(cluster.members),
        "operations": len(run.notes.history),
        "done": run.notes.history.completed_count,
        "epochs": cluster.history.epochs_led,
        "offsets": cluster.history.end_offset,
        "restarts": cluster.restarts,
        "wiped": cluster.wiped,
        "faults": fault_injector.happened.total(),
        "breaks": world.fabric.links_broken,
        "messages": cluster.watch.messages,
    }


# --- liveness ------------------------------------------------------------------------------------


def heal_majority(run: Run, fault_injector: QuorumFaultInjector) -> None:
    """Leave a connected majority alone: it must serve every client."""
    world, cluster = run.world, run.cluster
    core = choose_core(cluster, run.entropy.stream("core"))
    names = [member.name for member in core]
    world.faults.end_all()
    fault_injector.end_all(core)
    rest = [member for member in cluster.members if member not in core]
    world.fabric.barriers.close(apart([member.name for member in rest], names + run.clients))
    before = dict(run.notes.last_done)
    clients = [f"{name}.{number}" for name in run.clients for number in range(TASKS_EACH)]
    run.wait(
        lambda: all(run.notes.last_done[name] > before.get(name, 0) for name in clients),
        SERVE_MS,
        f"the majority of {names} serves every client: {run.notes.last_done} after {before}",
    )


def choose_core(cluster: QuorumCluster, entropy: SimEntropy) -> list[QuorumMember]:
    """Draw members with a majority in every voter set that a member has in force."""
    views = [member.last_voters for member in cluster.members if member.last_voters]
    left: list[object] = list(cluster.members)
    entropy.shuffle(left)
    core: list[QuorumMember] = []
    for member in left:
        assert isinstance(member, QuorumMember), f"{member!r}"
        core.append(member)
        if all(_has_majority(core, view) for view in views):
            break
    return sorted(core, key=lambda member: member.node_id)


def _has_majority(core: list[QuorumMember], voters: VoterSet) -> bool:
    # damaged members are about to be wiped
    whole = [member for member in core if not member.is_damaged]
    return sum(member.voter in voters for member in whole) >= voters.majority


def heal_all(run: Run, fault_injector: QuorumFaultInjector) -> None:
    """Repair all members: all must run, and the voters must be complete."""
    fault_injector.end_all(run.cluster.members)

    def is_whole() -> bool:
        fault_injector.maintain_voters()
        voters = run.cluster.voters()
        return (
            voters is not None
            and all(member.is_up for member in run.cluster.members)
            and len(voters) >= run.cluster.options.voters
            and all(run.cluster.member(voter.node_id).voter == voter for voter in voters)
        )

    run.wait(is_whole, CONVERGE_MS, "every member runs and the voters are complete")


def settle(run: Run) -> None:
    """Stop the clients; every member must converge to the same state."""
    run.notes.is_over = True
    run.wait(lambda: is_settled(run.cluster), CONVERGE_MS, "all members converge")
    states = {member.registers.digest for member in run.cluster.members if member.registers}
    assert len(states) == 1, "the members' states differ"


def is_settled(cluster: QuorumCluster) -> bool:
    """Return True if every member has applied the same log."""
    found = [node.status() for _, node in cluster.nodes_up()]
    if len(found) < len(cluster.members) or cluster.leader() is None:
        return False
    return len({(each.applied_end, each.log_end_offset, each.epoch) for each in found}) == 1 and (
        found[0].applied_end == found[0].log_end_offset
    )


# --- final checks ----------------------------------------------------------------------------


def judge(run: Run) -> None:
    """Check the history, the logs and the directories."""
    found = linearizability_anomalies(run.notes.history.operations(), Register())
    assert not found, report(found)
    for command, offset in run.notes.offsets.items():
        there = run.cluster.history.offset_of(command)
        assert there == offset, f"{command[:40]!r} was reported at {offset}, and is at {there}"
    for member in run.cluster.members:
        member.sim.power_cut()  # only durable data count
    compare_logs({member.name: member.sim.device.disk for member in run.cluster.members})
    run.cluster.check_directories()
