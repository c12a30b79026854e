"""A member of a group in a separate process, until SIGTERM: `group_member.py ADDRESS FOLDER NAME
PARTITIONS`.

It is the member of the simulation with the quorumlog client. Its requests and responses are written
to FOLDER/NAME-PID.jsonl, one line of JSON each, with the time of the machine's monotonic clock,
before they have an effect: a killed process has recorded everything that it did.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Final

from tests.simulation.levels.groups.client_member import ClientMember
from tests.simulation.levels.groups.history import GroupHistory, MemberIncarnation
from tests.simulation.levels.groups.member_reader import MemberContext
from tests.simulation.levels.groups.plan import GroupPlan, MemberBehaviour, MemberKind, MemberPlan

from quorumlog.runtime import Runtime, real
from quorumlog.testing.checkers import History, Place

TOPIC: Final = "shared"
GROUP: Final = "five"
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 10_000
BEAT_MS: Final = 500
BEHAVIOUR: Final = MemberBehaviour(
    work_ms=(0, 20),
    records_max=50,
    commit_ms=(100, 500),
    late=0.0,
    request_timeout_ms=5_000,
    pause_ms=(1, 1),
    span_ms=(1, 1),
    lie_ms=(1, 1),
)


class WrittenIncarnation(MemberIncarnation):
    """The incarnation of a member that writes every step to a file."""

    def answered(self, asked_ns: int, *, is_settled: bool, is_stored: bool = True) -> None:
        self._write("answered", asked_ns=asked_ns, is_settled=is_settled, is_stored=is_stored)
        super().answered(asked_ns, is_settled=is_settled, is_stored=is_stored)

    def evicted(self, asked_ns: int = -1) -> None:
        self._write("evicted", asked_ns=asked_ns)
        super().evicted(asked_ns)

    def set_epoch(self, epoch: int, member_id: str = "") -> None:
        self._write("set_epoch", epoch=epoch, member_id=member_id)
        super().set_epoch(epoch, member_id)

    def assign(self, places: Iterable[Place]) -> None:
        some = list(places)
        self._write("assign", places=some)
        super().assign(some)

    def revoke(self, places: Iterable[Place]) -> None:
        some = list(places)
        self._write("revoke", places=some)
        super().revoke(some)

    def _write(self, what: str, **said: Any) -> None:
        assert isinstance(self.group_history, WrittenHistory)
        self.group_history.write(what, **said)


class WrittenHistory(GroupHistory):
    """A group history of one process, in a file."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(now_ns=time.monotonic_ns)
        self._out = out

    def life(
        self, group: str, name: str, *, session_ms: int, rebalance_ms: int, instance_id: str = ""
    ) -> MemberIncarnation:
        """Return the incarnation of this process."""
        life = WrittenIncarnation(
            self,
            group,
            name,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            instance_id=instance_id,
        )
        self.incarnations.append(life)
        return life

    def processed(self, life: MemberIncarnation, place: Place, start: int, end: int) -> None:
        self.write("processed", place=place, start=start, end=end)
        super().processed(life, place, start, end)

    def send_commit(
        self, group: str, member: str, place: Place, offset: int, *, is_honest: bool = True
    ) -> tuple[int, str]:
        self.write("send_commit", place=place, offset=offset)
        return super().send_commit(group, member, place, offset, is_honest=is_honest)

    def write(self, what: str, **said: Any) -> None:
        """Write a line before the step has an effect."""
        self._out.write(json.dumps({"at": time.monotonic_ns(), "do": what, **said}) + "\n")
        self._out.flush()


async def live(runtime: Runtime, address: str, name: str, out: IO[str], partitions: int) -> None:
    """Run the member until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    setting = MemberContext(
        runtime=runtime,
        plan=MemberPlan(name=name, group=GROUP, kind=MemberKind.OWN),
        group=GroupPlan(
            name=GROUP,
            topics=(TOPIC,),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            beat_ms=BEAT_MS,
            members=(),
        ),
        behaviour=BEHAVIOUR,
        bootstrap="",
        grpc_bootstrap=address,
        group_history=WrittenHistory(out),
        history=History(),
        places=[(TOPIC, index) for index in range(partitions)],
        stop=stop,
    )
    await ClientMember(setting).run()


def main(address: str, folder: str, name: str, partitions: str) -> None:
    """Run the member of the command line with its history in a file."""
    with (Path(folder) / f"{name}-{os.getpid()}.jsonl").open("w") as out:
        real.run(lambda runtime: live(runtime, address, name, out, int(partitions)))


if __name__ == "__main__":
    main(*sys.argv[1:])
