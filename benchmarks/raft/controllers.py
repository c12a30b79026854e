"""Three controllers of quorumlog, each a node with only that role.

A proposal is a block of producer ids, allocated by the call with which brokers relay changes.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from benchmarks.raft.processes import Member, Refused, free_ports
from benchmarks.raft.wire import ask

from quorumlog.proto import controller_pb2, quorum_pb2
from quorumlog.server.addresses import id_text
from quorumlog.server.main import format_storage, load_config
from quorumlog.services import CONTROLLER_RELAY, QUORUM_DESCRIBE

START_S = 120.0
SERVE = """
import sys
from quorumlog.server.main import serve
sys.exit(serve(sys.argv[1], as_json=True))
"""


class Controllers:
    """A cluster that runs within a `with` block."""

    def __init__(
        self, folder: Path, *, settings: dict[str, int] | None = None, count: int = 3
    ) -> None:
        """`settings` go into every node's configuration."""
        self._folder = folder
        self._settings = settings or {}
        self._cluster_id = id_text(os.urandom(16))
        self.addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
        self._stack = ExitStack()
        self.members: list[Member] = []

    async def __aenter__(self) -> "Controllers":
        with self._stack:
            self._stack.callback(self._kill_all)
            await asyncio.to_thread(self._form)
            for number in range(len(self.addresses)):
                self.members.append(self._member(number))
            await self.find_leader()
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def restart(self, number: int) -> None:
        """Start a controller again, on its existing directory."""
        self.members[number].kill()
        self.members[number] = self._member(number)

    async def find_leader(self) -> int:
        """Return the active controller once all others follow it and have its committed records."""
        deadline_s = time.monotonic() + START_S
        request = quorum_pb2.DescribeQuorumRequest(local=True).SerializeToString()
        parse = quorum_pb2.DescribeQuorumResponse.FromString
        while time.monotonic() < deadline_s:
            try:
                states = [
                    parse(await ask(each, QUORUM_DESCRIBE.path, request)) for each in self.addresses
                ]
            except OSError:
                states = []
            found = {(each.leader_id, each.leader_epoch, each.high_watermark) for each in states}
            if len(found) == 1 and states[0].leader_id >= 0:
                return int(states[0].leader_id)
            await asyncio.sleep(0.02)
        complaints = [member.complaints() for member in self.members]
        raise Refused(f"the controllers do not agree after {START_S:.0f} s: {complaints}")

    async def commits(self, address: str, within_s: float) -> bool:
        """Return True if the allocation of a block of producer ids there is committed in this
        time."""
        request = controller_pb2.RelayRequest(cluster_id=self._cluster_id, broker_id=-1)
        request.allocate_producer_ids.broker_epoch = -1
        try:
            async with asyncio.timeout(within_s):
                await ask(address, CONTROLLER_RELAY.path, request.SerializeToString())
        except (OSError, TimeoutError):
            return False
        return True

    def _kill_all(self) -> None:
        for member in self.members:
            member.kill()

    def _config(self, number: int) -> Path:
        return self._folder / f"m{number}" / "node.toml"

    def _form(self) -> None:
        """Write the configurations and format the directories."""
        voters = [
            f"{number}@{address}:{id_text(os.urandom(16))}"
            for number, address in enumerate(self.addresses)
        ]
        for number, address in enumerate(self.addresses):
            path = self._config(number)
            path.parent.mkdir(parents=True)
            rows: dict[str, object] = {
                "node.id": number,
                "node.roles": ["controller"],
                "cluster.id": self._cluster_id,
                "data.dir": str(path.parent / "data"),
                "listeners.controller": address,
                "controller.voters": voters,
                **self._settings,
            }
            path.write_text("".join(f"{key} = {json.dumps(rows[key])}\n" for key in rows))
            format_storage(load_config(str(path)))

    def _member(self, number: int) -> Member:
        path = self._config(number)
        return Member([sys.executable, "-c", SERVE, str(path)], path.parent, talks=False)
