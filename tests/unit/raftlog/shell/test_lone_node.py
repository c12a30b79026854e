"""The driver over a data directory, on both runtimes: commits, order, restarts, rejections."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.raft_node import propose

from quorumlog.errors import (
    CorruptionError,
    DirectoryMismatch,
    OutcomeUnknown,
    Overloaded,
    QuorumlogError,
    Stopping,
)
from quorumlog.ids import DirectoryId, NodeId
from quorumlog.raftlog import QUORUM_STATE_NAME, RaftConfig
from quorumlog.raftlog.shell import RaftNode
from quorumlog.records.batch import iterate_batches
from quorumlog.runtime import Runtime
from quorumlog.storage import LogConfig
from quorumlog.storage.shell.data_directory import DataDirectory

from .lone_voter import CLUSTER, open_node

ONE = NodeId(1)
FIRST = 2  # offset of the first proposal; the no-op and the voters precede it
Listener = Any  # conftest.Remembers: importlib mode gives conftest no importable name
Run = Callable[[Callable[[Runtime, str], Coroutine[Any, Any, Any]]], Any]


async def format_directory(runtime: Runtime, path: str) -> None:
    await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)


def config_of(directory: DataDirectory, **changes: Any) -> RaftConfig:
    fields = {"node_id": ONE, "directory_id": directory.meta.directory_id, **changes}
    return RaftConfig(**fields)


@asynccontextmanager
async def opened(
    runtime: Runtime, path: str, listener: Listener, **changes: Any
) -> AsyncIterator[RaftNode]:
    """Start a node and close it in order."""
    async with runtime.tasks.scope("test") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        try:
            config = config_of(directory, **changes)
            node = await open_node(runtime, scope, directory, config, listener)
            await node.start()
            try:
                yield node
            finally:
                await node.close()
        finally:
            await directory.close()


def test_lone_voter_leads_when_started(run: Run, listener: Listener) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            assert node.status().is_leader
            assert (node.leader_id, node.status().epoch) == (ONE, 1)
            assert listener.leaders == [(1, 1)]
            assert node.status().high_watermark == FIRST

    run(main)
    assert listener.leaders == [(1, 1), (None, 1)]


def test_proposal_returns_its_last_offset_once_it_was_delivered(
    run: Run, listener: Listener
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            assert await propose(node, [b"a", b"b"]) == FIRST + 1
            assert listener.batches == [(FIRST, 1, [b"a", b"b"])]
            assert await propose(node, [b"c"]) == FIRST + 2

    run(main)
    assert listener.values == [b"a", b"b", b"c"]


def test_concurrent_proposals_share_writes_and_keep_their_order(
    run: Run, listener: Listener
) -> None:
    async def main(runtime: Runtime, path: str) -> list[int]:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            return list(await asyncio.gather(*(propose(node, [b"%d" % i]) for i in range(200))))

    assert run(main) == list(range(FIRST, FIRST + 200))
    assert listener.values == [b"%d" % i for i in range(200)]


def test_restart_delivers_committed_entries_before_it_leads_in_a_new_epoch(
    run: Run, listener: Listener
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            for index in range(20):
                await propose(node, [b"%d" % index] * 100)
        past = list(listener.batches)
        listener.batches.clear()
        listener.leaders.clear()
        async with opened(runtime, path, listener) as node:
            assert listener.batches == past
            assert listener.leaders == [(1, 2)]
            end = FIRST + 2000 + 1  # the no-op of the second epoch
            assert await propose(node, [b"new"]) == end
        assert listener.batches == [*past, (end, 2, [b"new"])]

    run(main)


def test_cancelled_proposer_affects_no_other_proposal(run: Run, listener: Listener) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await propose(node, [b"left"])
            await propose(node, [b"next"])

    run(main)
    assert listener.values == [b"left", b"next"]


def test_proposal_over_the_uncommitted_limit_is_refused_without_a_trace(
    run: Run, listener: Listener
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener, uncommitted_bytes_max=1000) as node:
            taken = node.propose_nowait([b"x" * 900])
            with pytest.raises(Overloaded):
                node.propose_nowait([b"y" * 900])
            await taken.wait_committed()
            await propose(node, [b"z"])

    run(main)
    assert listener.values == [b"x" * 900, b"z"]


def test_closed_node_refuses_and_fails_what_is_pending(run: Run, listener: Listener) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            pending = node.propose_nowait([b"pending"])
            await asyncio.sleep(0)  # after one turn of the driver it is in the log
            gathered = node.propose_nowait([b"gathered"])
            await node.close()
            with pytest.raises(Stopping):
                await gathered.wait_committed()
            with pytest.raises(OutcomeUnknown):
                await pending.wait_committed()
            for late in (propose(node, [b"late"]), node.read_index()):
                with pytest.raises(Stopping):
                    await late

    run(main)


def test_no_op_of_an_epoch_and_the_voters_are_control_batches(run: Run, listener: Listener) -> None:
    async def main(runtime: Runtime, path: str) -> list[tuple[bool, int, int]]:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            await propose(node, [b"a"])
        async with runtime.tasks.scope("test") as scope:
            directory = await DataDirectory.open(runtime, scope, path)
            log = await directory.open_log("__cluster_metadata-0", LogConfig(), topic_id=None)
            found = log.read(0, max_bytes=10_000)
            assert found is not None
            content = await directory.reader.read(found)
            await directory.close()
            return [
                (h.is_control, h.leader_epoch, h.record_count) for _, h in iterate_batches(content)
            ]

    assert run(main) == [(True, 1, 1), (True, 1, 1), (False, 1, 1)]


async def refused(
    runtime: Runtime, path: str, listener: Listener, error: type[QuorumlogError], **changes: Any
) -> str:
    with pytest.raises(error) as raised:
        async with opened(runtime, path, listener, **changes):
            pass
    assert listener.leaders == []
    return str(raised.value)


def test_another_disk_than_the_one_formatted_is_refused(run: Run, listener: Listener) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        other = DirectoryId(b"a" * 16)
        await refused(runtime, path, listener, DirectoryMismatch, directory_id=other)

    run(main)


@pytest.mark.parametrize("content", [b"", b"{", b'{"data_version": 2}', None])
def test_damaged_or_missing_quorum_state_refuses_to_start(
    run: Run, listener: Listener, content: bytes | None
) -> None:
    """The node may have voted and must not vote again (B1)."""

    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            await propose(node, [b"a"])
        listener.leaders.clear()
        state = f"{path}/{QUORUM_STATE_NAME}"
        runtime.files.remove(state)
        if content is not None:
            file = runtime.files.open(state, create=True)
            file.write(0, [content])
            file.close()
        said = await refused(runtime, path, listener, CorruptionError)
        assert QUORUM_STATE_NAME in said
        assert "restore the data directory" in said

    run(main)


def test_flipped_bit_in_the_log_refuses_to_start_and_changes_nothing(
    run: Run, listener: Listener
) -> None:
    """A lone voter with a truncated log loses records: the error has a remedy (B33)."""

    async def main(runtime: Runtime, path: str) -> None:
        await format_directory(runtime, path)
        async with opened(runtime, path, listener) as node:
            for index in range(50):
                await propose(node, [b"value %d" % index])
        listener.leaders.clear()
        segment = f"{path}/__cluster_metadata-0/{0:020}.log"
        file = runtime.files.open(segment)
        before = file.read(0, file.size())
        file.write(200, [bytes([before[200] ^ 1])])
        said = await refused(runtime, path, listener, CorruptionError)
        assert "metadata log" in said
        assert file.size() == len(before)
        file.close()

    run(main)
