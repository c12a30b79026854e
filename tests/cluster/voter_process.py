"""A voter of a quorum in a separate process, with registers as its state; tests kill, stop, pause
and start it.

`python -m tests.cluster.voter_process SPEC` runs one; SPEC is the JSON of a `Spec`.
"""

import asyncio
import json
import select
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from google.protobuf.wrappers_pb2 import BytesValue
from tests.kit.raft_node import AwaitedNode
from tests.simulation.cluster.registers import Registers, RegisterService

from quorumlog.ids import ClusterId, DirectoryId, NodeId
from quorumlog.raftlog.config import RaftConfig
from quorumlog.raftlog.shell import ProposalService, RaftNode, RaftNodeConfig, format_directory
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.runtime import CallContext, Handler, Method, Runtime, real
from quorumlog.storage.shell.data_directory import DataDirectory

CLUSTER_ID: Final = ClusterId("chaos-of-three-voters-")
DESCRIBE: Final = Method("/quorumlog.tests.Voter/Describe", BytesValue, BytesValue)
"""The JSON text of an `Account`."""
READY_S: Final = 120.0
STOP_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Spec:
    """The configuration of a voter's process."""

    node_id: int
    data_dir: str
    addresses: dict[str, str]  # of all voters by node id
    heartbeat_ms: int = 50
    election_ms: tuple[int, int] = (400, 800)
    snapshot_every_bytes: int = 200_000

    def voter(self, node_id: int) -> Voter:
        """Return a voter of the quorum: directory ids follow from node ids."""
        return Voter(NodeId(node_id), DirectoryId(bytes([node_id]) * 16))

    def voters(self) -> VoterSet:
        """Return the first voter set, which has all voters."""
        return VoterSet.of(
            (self.voter(int(node_id)), address) for node_id, address in self.addresses.items()
        )


@dataclass(frozen=True, slots=True)
class Account:
    """The log end, the applied end and the state of a voter."""

    role: str
    epoch: int
    log_end_offset: int
    applied_end: int
    digest: str
    values: int


async def serve(spec: Spec, runtime: Runtime) -> None:
    """Run the voter until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    me = spec.voter(spec.node_id)
    await format_directory(
        runtime, spec.data_dir, cluster_id=CLUSTER_ID, node_id=me.node_id, voters=spec.voters()
    )
    address = spec.addresses[str(spec.node_id)]
    async with runtime.tasks.scope("voter") as scope:
        directory = await DataDirectory.open(runtime, scope, spec.data_dir)
        registers = Registers()
        node = await RaftNode.open(
            runtime,
            scope,
            directory,
            cluster_id=CLUSTER_ID,
            config=RaftConfig(
                node_id=me.node_id,
                directory_id=me.directory_id,
                address=address,
                heartbeat_ms=spec.heartbeat_ms,
                election_timeout_ms_min=spec.election_ms[0],
                election_timeout_ms_max=spec.election_ms[1],
            ),
            state_machine=registers,
            node_config=RaftNodeConfig(snapshot_every_bytes=spec.snapshot_every_bytes),
        )

        async def describe(request: BytesValue, context: CallContext) -> BytesValue:
            status = node.status()
            account = Account(
                role=status.role,
                epoch=status.epoch,
                log_end_offset=status.log_end_offset,
                applied_end=status.applied_end,
                digest=registers.digest.hex(),
                values=len(registers.values),
            )
            return BytesValue(value=json.dumps(asdict(account)).encode())

        handlers = {
            **node.handlers(),
            **ProposalService(runtime, node).handlers(),
            **RegisterService(AwaitedNode(node), registers).handlers(),
            DESCRIBE.path: Handler(DESCRIBE, describe),
        }
        listener = await runtime.network.serve(address, handlers)
        await node.start()
        print("ready", flush=True)
        await stop.wait()
        await node.close()
        await listener.close(200)
        await directory.close()


class VoterProcess:
    """The process of a voter, controlled by a test."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec = spec
        self.starts = 0
        self._log = folder / f"voter-{spec.node_id}.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def is_up(self) -> bool:
        """Return True if it was started and not killed or stopped since then."""
        return self._process is not None

    def start(self) -> None:
        """Start it without waiting until it serves."""
        assert self._process is None, f"voter {self.spec.node_id} is up"
        self.starts += 1
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.cluster.voter_process",
                    json.dumps(asdict(self.spec)),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_ready(self) -> None:
        """Wait until it serves. Raise AssertionError if it does not."""
        assert self._process is not None, f"voter {self.spec.node_id} is down"
        assert self._process.stdout is not None
        seen, _, _ = select.select([self._process.stdout], [], [], READY_S)
        assert seen, f"voter {self.spec.node_id} is not ready: {self.complaints()}"
        assert self._process.stdout.readline(), (
            f"voter {self.spec.node_id} does not start: {self.complaints()}"
        )

    def ended(self) -> int | None:
        """Return the exit code if it has exited by itself."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """Kill it (SIGKILL). Do nothing if it is down."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def stop(self) -> int:
        """Stop it (SIGTERM); return its exit code."""
        assert self._process is not None, f"voter {self.spec.node_id} is down"
        self._process.terminate()
        try:
            return self._process.wait(STOP_S)
        finally:
            self.kill()

    def pause(self) -> None:
        """Pause it (SIGSTOP): its connections stay open without responses."""
        assert self._process is not None, f"voter {self.spec.node_id} is down"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it (SIGCONT)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def complaints(self) -> str:
        """Return its stderr, of all its processes."""
        return self._log.read_text()[-5_000:]


def main() -> None:
    """Run the voter of the command line."""
    fields = json.loads(sys.argv[1])
    fields["election_ms"] = tuple(fields["election_ms"])
    real.run(partial(serve, Spec(**fields)))


if __name__ == "__main__":
    main()
