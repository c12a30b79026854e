"""Decisions of many steps are atomic and ordered with all others, over a real log."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from tests.kit.waits import AMPLE_S
from tests.unit.metadata.shell.stack import CALL_MS, ONE, Run, Stack, create, started

from quorumlog.errors import (
    AuthorizationOutdated,
    CorruptionError,
    InvalidRequest,
    NotController,
    OutcomeUnknown,
    Stopping,
    TopicAlreadyExists,
)
from quorumlog.ids import NodeId, TopicId
from quorumlog.metadata import (
    AnyDecision,
    Command,
    ControllerConfig,
    CreateTopic,
    Decision,
    DeleteTopic,
    Done,
    ImageDelta,
    LongDecision,
    MetadataImage,
)
from quorumlog.metadata.acls import (
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
    acl_message,
)
from quorumlog.metadata.shell.command_queue import CommandQueue
from quorumlog.proto import metadata_records_pb2 as records_pb
from quorumlog.runtime import Runtime

RECORDS_AT_ONCE = ControllerConfig().records_at_once
MANY = 4 * RECORDS_AT_ONCE
SMALL_BYTES = 64 << 10  # two steps fill it, so a long decision waits for commits
Records = tuple[records_pb.MetadataRecord, ...]


def topic(number: int) -> records_pb.MetadataRecord:
    record = records_pb.TopicRecord(topic_id=number.to_bytes(16, "big"), name=f"t{number}")
    return records_pb.MetadataRecord(topic=record)


def command(number: int) -> CreateTopic:
    return CreateTopic(name=f"t{number}", topic_id=TopicId(number.to_bytes(16, "big")))


class ScriptedController:
    """A controller for tests: `DeleteTopic(name)` runs the slices registered for that name."""

    def __init__(self, **slices: Iterator[Records]) -> None:
        self.slices = slices
        self.seen: list[tuple[str, int]] = []  # command and the topics at its decision

    def __call__(
        self, image: MetadataImage, command: Command, config: ControllerConfig
    ) -> AnyDecision:
        assert isinstance(command, CreateTopic | DeleteTopic)
        self.seen.append((command.name, len(image.topics_by_id)))
        if isinstance(command, CreateTopic):
            number = int.from_bytes(command.topic_id, "big")
            return Decision(records=(topic(number),), reply=Done())
        return LongDecision(
            name=command.name,
            slices=self.slices[command.name],
            finish=lambda after: (Done(), (NodeId(len(after.topics_by_id)),)),
        )


def deciding_on(
    runtime: Runtime, path: str, decider: ScriptedController
) -> AbstractAsyncContextManager[tuple[Stack, CommandQueue]]:
    """A stack whose controller only delivers committed records and runs scripted decisions."""

    @asynccontextmanager
    async def context() -> Any:
        async with started(runtime, path, uncommitted_bytes_max=SMALL_BYTES) as stack:
            deciding = CommandQueue(
                config=ControllerConfig(), leader_id=lambda: ONE, decide=decider
            )
            image = stack.metadata.committed_image
            deciding.begin(stack.raft, image, open_transaction=stack.metadata.open_transaction)
            running = stack.scope.spawn(deciding.run(), name="deciding")
            yield stack, deciding
            deciding.close()
            await running

    return context()


def slices_of(*sizes: int) -> Iterator[Records]:
    number = 1000
    for size in sizes:
        yield tuple(topic(number + index) for index in range(size))
        number += size


def topics_at_each_step(stack: Stack) -> list[int]:
    """Record the number of topics of each published image while the test runs."""
    counts: list[int] = []

    def note(delta: ImageDelta) -> None:
        counts.append(len(delta.after.topics_by_id))

    stack.publisher.subscribe(note)
    return counts


def test_long_decision_is_atomic_and_answered_from_the_image_after_it(
    run: Run,
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        decider = ScriptedController(long=slices_of(10, 0, MANY, 0, 3))
        async with deciding_on(runtime, path, decider) as (stack, deciding):
            counts = topics_at_each_step(stack)
            outcome = await deciding.submit(DeleteTopic(name="long"))
            assert outcome.brokers == (MANY + 13,)
            assert deciding.image.offset == outcome.offset
            await stack.publisher.wait_applied(outcome.offset, CALL_MS)
            assert set(counts) <= {0, MANY + 13}, "no published image has a part of it"
            assert stack.publisher.image == deciding.image

    run(main)


def test_a_long_decision_of_one_step_needs_no_transaction(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        decider = ScriptedController(long=slices_of(0, 7, 0))
        async with deciding_on(runtime, path, decider) as (_, deciding):
            await deciding.submit(command(1))
            before = deciding.image.offset
            outcome = await deciding.submit(DeleteTopic(name="long"))
            assert outcome.offset == before + 7
            assert len(deciding.image.topics_by_id) == 8

    run(main)


def test_commands_during_a_long_decision_are_decided_after_it_in_order(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        decider = ScriptedController(long=slices_of(MANY, MANY))
        async with deciding_on(runtime, path, decider) as (_, deciding):
            async with asyncio.timeout(AMPLE_S), asyncio.TaskGroup() as group:
                group.create_task(deciding.submit(DeleteTopic(name="long")))
                await asyncio.sleep(0)
                for number in range(1, 20):
                    group.create_task(deciding.submit(command(number)))
            expected = [(f"t{number}", 2 * MANY + number - 1) for number in range(1, 20)]
            assert decider.seen == [("long", 0), *expected]

    run(main)


def test_command_behind_a_change_of_rights_is_refused_with_its_offset(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        pattern = ResourcePattern(AclResourceType.TOPIC, "t", AclPatternType.LITERAL)
        acl = Acl(pattern, "User:mallory", "*", AclOperation.CREATE, AclPermission.DENY)
        change = (records_pb.MetadataRecord(acl=acl_message(acl)),)
        decider = ScriptedController(long=iter([*slices_of(MANY), change]))
        async with deciding_on(runtime, path, decider) as (_, deciding):
            offset = deciding.image.offset
            long = asyncio.ensure_future(deciding.submit(DeleteTopic(name="long")))
            await asyncio.sleep(0)
            with pytest.raises(AuthorizationOutdated) as caught:
                await deciding.submit(command(1), authorized_offset=offset)
            await long
            changed = caught.value.metadata_offset
            assert offset < changed == deciding.image.security_offset
            assert [name for name, _ in decider.seen] == ["long"]
            await deciding.submit(command(1), authorized_offset=changed)

    run(main)


def test_other_tasks_run_between_the_steps_of_a_long_decision(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        turns: list[int] = []

        def slices() -> Iterator[Records]:
            for number, records in enumerate(slices_of(*[RECORDS_AT_ONCE] * 5, 0, 0, 5)):
                assert turns == [*range(number)], "every task that was ready before had a turn"
                asyncio.get_running_loop().call_soon(turns.append, number)
                yield records

        async with deciding_on(runtime, path, ScriptedController(long=slices())) as (_, deciding):
            await deciding.submit(DeleteTopic(name="long"))
            assert len(deciding.image.topics_by_id) == 5 * RECORDS_AT_ONCE + 5

    run(main)


def test_error_in_a_later_step_aborts_the_decision_and_restores_the_image(
    run: Run,
) -> None:
    def failing() -> Iterator[Records]:
        yield from slices_of(MANY)
        raise InvalidRequest("no more of this")

    async def main(runtime: Runtime, path: str) -> None:
        decider = ScriptedController(long=failing())
        async with deciding_on(runtime, path, decider) as (stack, deciding):
            counts = topics_at_each_step(stack)
            await deciding.submit(command(1))
            with pytest.raises(InvalidRequest, match="no more of this"):
                await deciding.submit(DeleteTopic(name="long"))
            outcome = await deciding.submit(command(2))
            await stack.publisher.wait_applied(outcome.offset, CALL_MS)
            assert set(counts) <= {0, 1, 2}
            assert decider.seen == [("t1", 0), ("long", 1), ("t2", 1)]
            assert stack.publisher.image == deciding.image

    run(main)


class DuplicateRefuser(ScriptedController):
    """A controller that refuses topics that exist in its newest image."""

    def __call__(
        self, image: MetadataImage, command: Command, config: ControllerConfig
    ) -> AnyDecision:
        assert isinstance(command, CreateTopic | DeleteTopic)
        if command.name in image.topics_by_name:
            raise TopicAlreadyExists("the topic exists", topic=command.name)
        return super().__call__(image, command, config)


def test_refusal_waits_until_its_cause_is_committed(run: Run) -> None:
    """Otherwise a topic "exists" that is lost if the leadership ends before the commit."""

    async def main(runtime: Runtime, path: str) -> None:
        decider = DuplicateRefuser(long=slices_of(MANY))
        async with deciding_on(runtime, path, decider) as (stack, deciding):

            async def exists(number: int) -> list[str]:
                with pytest.raises(TopicAlreadyExists):
                    await deciding.submit(command(number))
                return list(stack.metadata.committed_image.topics_by_name)

            created = asyncio.ensure_future(deciding.submit(command(1)))
            await asyncio.sleep(0)
            assert await exists(1) == ["t1"]
            await created
            long = asyncio.ensure_future(deciding.submit(DeleteTopic(name="long")))
            await asyncio.sleep(0)
            assert "t1000" in await exists(1000), "a queued command as well"
            await long
            assert "t1" in await exists(1), "and at once without uncommitted records"

    run(main)


def test_refusal_based_on_lost_records_redirects_the_caller(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with deciding_on(runtime, path, DuplicateRefuser()) as (stack, deciding):
            created = asyncio.ensure_future(deciding.submit(command(1)))
            await asyncio.sleep(0)
            twin = asyncio.ensure_future(deciding.submit(command(1)))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(stack.raft.close())
            with pytest.raises(OutcomeUnknown):
                await created
            with pytest.raises(NotController):
                await twin
            await closing

    run(main)


def test_invalid_record_is_not_appended_and_the_next_command_is_decided(run: Run) -> None:
    """Every node that replays such a record stops for good."""

    class Wrong(ScriptedController):
        def __call__(
            self, image: MetadataImage, command: Command, config: ControllerConfig
        ) -> AnyDecision:
            decision = super().__call__(image, command, config)
            if isinstance(decision, Decision) and command == once:
                return Decision(records=decision.records * 2, reply=Done())
            return decision

    once = command(1)

    async def main(runtime: Runtime, path: str) -> None:
        decider = Wrong(long=iter(((topic(7),) * MANY,)))
        async with deciding_on(runtime, path, decider) as (stack, deciding):
            end = stack.raft.status().log_end_offset
            with pytest.raises(CorruptionError, match="created twice"):
                await deciding.submit(once)
            assert stack.raft.status().log_end_offset == end
            with pytest.raises(CorruptionError, match="created twice"):
                await deciding.submit(DeleteTopic(name="long"))
            outcome = await deciding.submit(command(2))
            await stack.publisher.wait_applied(outcome.offset, CALL_MS)
            assert list(stack.publisher.image.topics_by_name) == ["t2"]

    run(main)


def test_image_after_a_transaction_of_this_node_is_published_without_a_second_replay(
    run: Run,
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        decider = ScriptedController(long=slices_of(MANY, MANY))
        async with deciding_on(runtime, path, decider) as (stack, deciding):
            stack.metadata.foresee(deciding.foresee)
            deltas: list[ImageDelta] = []
            stack.publisher.subscribe(deltas.append)
            first = deciding.submit(command(1))
            long = asyncio.ensure_future(deciding.submit(DeleteTopic(name="long")))
            await first
            outcome = await long
            after = deciding.image
            last = await deciding.submit(command(2))
            await stack.publisher.wait_applied(last.offset, CALL_MS)
            whole = [delta for delta in deltas if delta.after.offset == outcome.offset]
            assert [delta.after is after for delta in whole] == [True]
            assert len(whole[0].created_topics()) == 2 * MANY
            for before, following in pairwise(deltas):
                assert following.before is before.after
        async with started(runtime, path) as again:
            await again.publisher.wait_applied(last.offset, CALL_MS)
            assert again.publisher.image.topics_by_id == stack.publisher.image.topics_by_id

    run(main)


def test_new_leader_aborts_the_unfinished_transaction_of_the_last_one(run: Run) -> None:
    """The node stops inside a decision and leads again after a restart. The decision has no
    effect."""

    def endless() -> Iterator[Records]:
        yield from slices_of(*[RECORDS_AT_ONCE] * 100_000)

    async def main(runtime: Runtime, path: str) -> None:
        async with deciding_on(runtime, path, ScriptedController(long=endless())) as (
            stack,
            deciding,
        ):
            asked = asyncio.ensure_future(deciding.submit(DeleteTopic(name="long")))
            await stack.begun()
            deciding.close()
            with pytest.raises(Stopping):
                await asked
        async with started(runtime, path) as stack, stack.session() as session:
            assert not stack.publisher.image.topics_by_id
            await session.submit(create("a"), timeout_ms=CALL_MS)
            assert stack.metadata.open_transaction is None
            assert [t.name for t in stack.publisher.image.sorted_topics()] == ["a"]

    run(main)


def test_end_of_a_leadership_fails_running_and_queued_commands(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        decider = ScriptedController(long=slices_of(*[RECORDS_AT_ONCE] * 1000))
        async with deciding_on(runtime, path, decider) as (stack, deciding):
            long = asyncio.ensure_future(deciding.submit(DeleteTopic(name="long")))
            await stack.begun()
            waiting = asyncio.ensure_future(deciding.submit(command(1)))
            await asyncio.sleep(0)
            deciding.end(stack.metadata.committed_image)
            for asked in (long, waiting):
                with pytest.raises(NotController):
                    await asked
            image = stack.metadata.committed_image
            deciding.begin(stack.raft, image, open_transaction="long")
            await deciding.submit(command(2))
            assert len(deciding.image.topics_by_id) == 1

    run(main)


def test_cancelled_caller_does_not_stop_a_started_decision(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        decider = ScriptedController(long=slices_of(MANY, MANY))
        async with deciding_on(runtime, path, decider) as (stack, deciding):
            asked = asyncio.ensure_future(deciding.submit(DeleteTopic(name="long")))
            await stack.begun()
            asked.cancel()
            await deciding.submit(command(1))
            assert len(deciding.image.topics_by_id) == 2 * MANY + 1

    run(main)


@pytest.mark.slow
def test_large_topic_is_created_in_steps_and_published_as_a_whole(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            sizes: list[int] = []

            def note(delta: ImageDelta) -> None:
                sizes.extend(len(t.partitions) for t in delta.after.topics_by_id.values())

            stack.publisher.subscribe(note)
            async with asyncio.timeout(AMPLE_S), asyncio.TaskGroup() as group:
                large = group.create_task(
                    session.submit(create("large", partitions=5000), timeout_ms=CALL_MS)
                )
                await stack.begun()  # otherwise the second command may arrive first
                twin = create("large", b"y" * 16)
                refused = group.create_task(_refused(session.submit(twin, timeout_ms=CALL_MS)))
            assert len(large.result().reply.topic.partitions) == 5000
            assert isinstance(refused.result(), TopicAlreadyExists)
            assert set(sizes) == {5000}

    run(main)


async def _refused(call: Any) -> BaseException | None:
    try:
        await call
    except TopicAlreadyExists as error:
        return error
    return None
