"""A member of a group in a process of its own, until SIGTERM: `group_member.py ADDRESS FOLDER NAME
PARTITIONS`.

It is the member of the simulation that is our own client. What it asks and is told goes, a line of
JSON each, with the time of the machine's monotonic clock, to FOLDER/NAME-PID.jsonl, before anything
else happens: a process that is killed has said all that it did.
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

from tests.simulation.levels.groups.client_member import OwnMember
from tests.simulation.levels.groups.history import Chronicle, Life
from tests.simulation.levels.groups.member_reader import Setting
from tests.simulation.levels.groups.plan import Behaviour, GroupPlan, Kind, MemberPlan

from quorumlog.runtime import Runtime, real
from quorumlog.testing.checkers import History, Place

TOPIC: Final = "shared"
GROUP: Final = "five"
SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 10_000
BEAT_MS: Final = 500
BEHAVIOUR: Final = Behaviour(
    work_ms=(0, 20),
    records_max=50,
    commit_ms=(100, 500),
    late=0.0,
    request_timeout_ms=5_000,
    pause_ms=(1, 1),
    span_ms=(1, 1),
    lie_ms=(1, 1),
)


class WrittenLife(Life):
    """A life whose every step is written down."""

    def answered(self, asked_ns: int, *, is_settled: bool, is_stored: bool = True) -> None:
        """As `Life` does."""
        self._write("answered", asked_ns=asked_ns, is_settled=is_settled, is_stored=is_stored)
        super().answered(asked_ns, is_settled=is_settled, is_stored=is_stored)

    def shut_out(self, asked_ns: int = -1) -> None:
        """As `Life` does."""
        self._write("shut_out", asked_ns=asked_ns)
        super().shut_out(asked_ns)

    def told(self, epoch: int, member_id: str = "") -> None:
        """As `Life` does."""
        self._write("told", epoch=epoch, member_id=member_id)
        super().told(epoch, member_id)

    def takes(self, places: Iterable[Place]) -> None:
        """As `Life` does."""
        some = list(places)
        self._write("takes", places=some)
        super().takes(some)

    def gives(self, places: Iterable[Place]) -> None:
        """As `Life` does."""
        some = list(places)
        self._write("gives", places=some)
        super().gives(some)

    def _write(self, what: str, **said: Any) -> None:
        assert isinstance(self.chronicle, WrittenChronicle)
        self.chronicle.write(what, **said)


class WrittenChronicle(Chronicle):
    """A chronicle of one life, on disk."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(now_ns=time.monotonic_ns)
        self._out = out

    def life(
        self, group: str, name: str, *, session_ms: int, rebalance_ms: int, instance_id: str = ""
    ) -> Life:
        """The only one of this process."""
        life = WrittenLife(
            self,
            group,
            name,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            instance_id=instance_id,
        )
        self.lives.append(life)
        return life

    def works(self, life: Life, place: Place, start: int, end: int) -> None:
        """As `Chronicle` does."""
        self.write("works", place=place, start=start, end=end)
        super().works(life, place, start, end)

    def commits(
        self, group: str, who: str, place: Place, offset: int, *, is_honest: bool = True
    ) -> tuple[int, str]:
        """As `Chronicle` does."""
        self.write("commits", place=place, offset=offset)
        return super().commits(group, who, place, offset, is_honest=is_honest)

    def write(self, what: str, **said: Any) -> None:
        """Write a line; what others can see happens later."""
        self._out.write(json.dumps({"at": time.monotonic_ns(), "do": what, **said}) + "\n")
        self._out.flush()


async def live(runtime: Runtime, address: str, name: str, out: IO[str], partitions: int) -> None:
    """Be a member until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    setting = Setting(
        runtime=runtime,
        plan=MemberPlan(name=name, group=GROUP, kind=Kind.OWN),
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
        chronicle=WrittenChronicle(out),
        history=History(),
        places=[(TOPIC, index) for index in range(partitions)],
        stop=stop,
    )
    await OwnMember(setting).run()


def main(address: str, folder: str, name: str, partitions: str) -> None:
    """Live, and write it down."""
    with (Path(folder) / f"{name}-{os.getpid()}.jsonl").open("w") as out:
        real.run(lambda runtime: live(runtime, address, name, out, int(partitions)))


if __name__ == "__main__":
    main(*sys.argv[1:])
