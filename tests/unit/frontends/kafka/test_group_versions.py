"""Every API key of consumer groups in each of its versions."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode

from . import group_calls as calls
from .admin_calls import NODE, create_topic
from .group_calls import GROUP, alone, assignment, committed, joined, on_a_node, ready, synced

OK, UNKNOWN_PARTITION, UNKNOWN_MEMBER, NOT_FOUND, UNKNOWN_ID = 0, 3, 25, 69, 100


@pytest.mark.parametrize("version", range(10))
def test_join_response_has_the_fields_of_its_version(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client)
        fields = calls.join_fields(version)
        first = await kafka.client.ask(calls.JOIN_GROUP, version, **fields)
        if version >= 4:  # first a member id, to join with again
            assert (int(first.error_code), first.generation_id) == (79, -1)
            assert first.member_id.startswith("raw-")
            assert first.protocol_name == (None if version >= 7 else "")
            first = await kafka.client.ask(
                calls.JOIN_GROUP,
                version,
                **calls.join_fields(version, member_id=first.member_id),
            )
        assert (int(first.error_code), first.generation_id) == (OK, 1)
        assert first.leader == first.member_id
        assert first.protocol_name == "range"
        assert [each.metadata for each in first.members] == [calls.subscription("t")]
        if version >= 7:
            assert first.protocol_type == "consumer"

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(6))
def test_sync_returns_the_assignment_of_the_member(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client)
        member = await joined(kafka.client)
        part = assignment("t", 0, 1)
        answer = await synced(kafka.client, member, {member.member_id: part}, version)
        assert (int(answer.error_code), answer.assignment) == (OK, part)
        if version >= 5:
            assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
        stranger = await kafka.client.ask(
            calls.SYNC_GROUP,
            version,
            group_id=GROUP,
            generation_id=1,
            member_id="nobody",
            protocol_type="consumer",
            protocol_name="range",
            assignments=(),
        )
        assert (int(stranger.error_code), stranger.assignment) == (UNKNOWN_MEMBER, b"")

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_checks_the_membership(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        member = await alone(kafka.client)

        async def beat(member_id: str, generation: int) -> int:
            answer = await kafka.client.ask(
                calls.HEARTBEAT,
                version,
                group_id=GROUP,
                generation_id=generation,
                member_id=member_id,
            )
            return int(answer.error_code)

        assert await beat(member.member_id, 1) == OK
        assert await beat(member.member_id, 7) == 22  # ILLEGAL_GENERATION
        assert await beat("nobody", 1) == UNKNOWN_MEMBER

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(6))
def test_leave_has_one_result_or_one_for_each_member(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        member = await alone(kafka.client)

        async def leave(group: str, *names: str) -> tuple[int, list[int]]:
            if version < 3:
                answer = await kafka.client.ask(
                    calls.LEAVE_GROUP, version, group_id=group, member_id=names[0]
                )
                return int(answer.error_code), []
            answer = await kafka.client.ask(
                calls.LEAVE_GROUP,
                version,
                group_id=group,
                members=[
                    {
                        "member_id": name,
                        "group_instance_id": None,
                        **({"reason": "done"} if version >= 5 else {}),
                    }
                    for name in names
                ],
            )
            assert [each.member_id for each in answer.members] == list(names)
            return int(answer.error_code), [int(each.error_code) for each in answer.members]

        is_single = version < 3
        unknown_member = (UNKNOWN_MEMBER, []) if is_single else (OK, [UNKNOWN_MEMBER])
        assert await leave(GROUP, "nobody") == unknown_member
        assert await leave("no such group", "nobody") == unknown_member
        assert await leave(GROUP, member.member_id) == (OK, [] if is_single else [OK])
        assert await leave(GROUP, member.member_id) == unknown_member

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_is_stored_and_unknown_partitions_have_an_error(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        member = await alone(kafka.client)
        member_fields: dict[str, Any] = {
            "member_id": member.member_id,
            "generation_id_or_member_epoch": 1,
        }
        codes = await committed(
            kafka.client, version, topic_id, (0, 5), (7, 5), (1, 6), **member_fields
        )
        assert codes == [(0, OK), (7, UNKNOWN_PARTITION), (1, OK)]
        other = await kafka.client.ask(
            calls.OFFSET_COMMIT,
            version,
            group_id=GROUP,
            **member_fields,
            topics=[
                {
                    **({"topic_id": bytes(15) + b"x"} if version >= 10 else {"name": "nope"}),
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 1,
                            "committed_metadata": None,
                        }
                    ],
                }
            ],
            **({"retention_time": -1} if version < 5 else {}),
        )
        ((refused,),) = [topic.partitions for topic in other.topics]
        assert refused.error_code == (UNKNOWN_ID if version >= 10 else UNKNOWN_PARTITION)
        stranger = {"member_id": "nobody", "generation_id_or_member_epoch": 1}
        codes = await committed(kafka.client, version, topic_id, (0, 9), (7, 5), **stranger)
        assert codes == [(0, UNKNOWN_MEMBER), (7, UNKNOWN_PARTITION)]
        stored = await fetched(kafka, 9, topic_id, (0, 1))
        epoch = 3 if version >= 6 else -1
        assert stored == [(0, 5, epoch, "note", OK), (1, 6, epoch, "note", OK)]

    on_a_node(folder, main)


async def fetched(
    kafka: KafkaNode, version: int, topic_id: bytes, partitions: tuple[int, ...] | None
) -> list[tuple[int, int, int, str | None, int]]:
    """Fetch the committed offsets of topic `t`, or of all topics."""
    named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    topics = None if partitions is None else [{**named, "partition_indexes": partitions}]
    if version >= 8:
        group: dict[str, Any] = {"group_id": GROUP, "topics": topics}
        if version >= 9:
            group |= {"member_id": None, "member_epoch": -1}
        answer = await kafka.client.ask(
            calls.OFFSET_FETCH, version, groups=[group], require_stable=True
        )
        (result,) = answer.groups
        assert result.group_id == GROUP
    else:
        stable = {"require_stable": True} if version >= 7 else {}
        result = await kafka.client.ask(
            calls.OFFSET_FETCH, version, group_id=GROUP, topics=topics, **stable
        )
    if version >= 2:
        assert not result.error_code
    (topic,) = result.topics
    assert (topic.topic_id.bytes if version >= 10 else topic.name) in (topic_id, "t")
    return [
        (
            part.partition_index,
            part.committed_offset,
            getattr(part, "committed_leader_epoch", -1),
            part.metadata,
            int(part.error_code),
        )
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_by_partition_or_all(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client)
        assert await committed(kafka.client, 9, topic_id, (1, 6)) == [(1, OK)]
        epoch = 3 if version >= 5 else -1
        stored, nothing = (1, 6, epoch, "note", OK), (0, -1, -1, "", OK)
        assert await fetched(kafka, version, topic_id, (0, 1)) == [nothing, stored]
        if version >= 2:
            assert await fetched(kafka, version, topic_id, None) == [stored]
        if version >= 10:
            gone = {"topic_id": bytes(15) + b"x", "partition_indexes": (4,)}
            group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": [gone]}
            answer = await kafka.client.ask(
                calls.OFFSET_FETCH, version, groups=[group], require_stable=False
            )
            ((part,),) = [topic.partitions for topic in answer.groups[0].topics]
            assert (part.error_code, part.committed_offset) == (UNKNOWN_ID, -1)

    on_a_node(folder, main)


@pytest.mark.parametrize("version", [2, 9, 10])
def test_a_negative_offset_is_stored_and_fetched(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client)
        codes = await committed(kafka.client, version, topic_id, (0, -1), (1, -2))
        assert codes == [(0, OK), (1, OK)]
        epoch = 3 if version >= 6 else -1
        stored = [(0, -1, epoch, "note", OK), (1, -2, epoch, "note", OK)]
        assert await fetched(kafka, 9, topic_id, (0, 1)) == stored

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(1, 11))
def test_invalid_group_id_is_refused_as_the_version_requires(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client)
        named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
        asked = {"group_id": "", "topics": [{**named, "partition_indexes": (0,)}]}
        if version >= 8:
            more = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
            answer = await kafka.client.ask(
                calls.OFFSET_FETCH, version, groups=[{**asked, **more}], require_stable=False
            )
            (result,) = answer.groups
        else:
            result = await kafka.client.ask(calls.OFFSET_FETCH, version, **asked)
        if version >= 2:
            assert (int(result.error_code), result.topics) == (24, ())
        else:
            assert int(result.topics[0].partitions[0].error_code) == 24

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(7))
def test_a_classic_group_is_described(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        member = await alone(kafka.client)
        asked = {"include_authorized_operations": True} if version >= 3 else {}
        answer = await kafka.client.ask(
            calls.DESCRIBE_GROUPS, version, groups=(GROUP, "nope"), **asked
        )
        group, none = answer.groups
        assert (int(group.error_code), group.group_id, group.group_state) == (OK, GROUP, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (described,) = group.members
        assert (described.member_id, described.client_id) == (member.member_id, "raw")
        assert described.client_host.startswith("/")
        assert described.member_metadata == calls.subscription("t")
        assert described.member_assignment == assignment("t", 0)
        assert (int(none.error_code), none.group_state) == (
            NOT_FOUND if version >= 6 else OK,
            "Dead",
        )
        if version >= 3:
            assert group.authorized_operations == 0b1101_0100_1000

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_by_state_and_type(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await alone(kafka.client)
        await beaten(kafka, 1, "other")

        async def listed(**filters: Any) -> list[tuple[str, str]]:
            answer = await kafka.client.ask(calls.LIST_GROUPS, version, **filters)
            assert not answer.error_code
            return [(each.group_id, each.protocol_type) for each in answer.groups]

        classic, other = (GROUP, "consumer"), ("other", "consumer")
        if version < 4:
            assert await listed() == [classic, other]
            return
        kinds = {"types_filter": ()} if version >= 5 else {}
        assert await listed(states_filter=(), **kinds) == [classic, other]
        assert await listed(states_filter=("stable",), **kinds) == [classic, other]
        assert await listed(states_filter=("Empty",), **kinds) == []
        if version >= 5:
            assert await listed(states_filter=(), types_filter=("Consumer",)) == [other]
            assert await listed(states_filter=(), types_filter=("classic",)) == [classic]

    on_a_node(folder, main)


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        member = await alone(kafka.client)

        async def delete() -> list[tuple[str, int]]:
            answer = await kafka.client.ask(
                calls.DELETE_GROUPS, version, groups_names=(GROUP, "nope", GROUP)
            )
            return [(each.group_id, int(each.error_code)) for each in answer.results]

        assert await delete() == [(GROUP, 68), ("nope", NOT_FOUND)]  # NON_EMPTY_GROUP
        gone = {"member_id": member.member_id, "group_instance_id": None, "reason": None}
        await kafka.client.ask(calls.LEAVE_GROUP, 5, group_id=GROUP, members=[gone])
        assert await delete() == [(GROUP, OK), ("nope", NOT_FOUND)]
        assert await delete() == [(GROUP, NOT_FOUND), ("nope", NOT_FOUND)]

    on_a_node(folder, main)


def test_offsets_of_unsubscribed_topics_are_deleted(folder: str) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await create_topic(kafka.channel, "u")
        member = await alone(kafka.client)
        member_fields = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
        assert await committed(kafka.client, 9, topic_id, (0, 5), **member_fields) == [(0, OK)]

        async def delete(group: str) -> tuple[int, list[tuple[str, int]]]:
            names = {"t": (0, 9), "u": (0,), "nope": (0,)}
            topics = [
                {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
                for name, indexes in names.items()
            ]
            answer = await kafka.client.ask(calls.OFFSET_DELETE, 0, group_id=group, topics=topics)
            return int(answer.error_code), [
                (topic.name, int(part.error_code))
                for topic in answer.topics
                for part in topic.partitions
            ]

        read = [("t", 86), ("t", UNKNOWN_PARTITION)]  # GROUP_SUBSCRIBED_TO_TOPIC
        rest = [("u", OK), ("nope", UNKNOWN_PARTITION)]
        assert await delete(GROUP) == (OK, read + rest)
        assert await delete("no such group") == (NOT_FOUND, [])

    on_a_node(folder, main)


async def beaten(kafka: KafkaNode, version: int, group: str = GROUP, **others: Any) -> Any:
    """Send a KIP-848 heartbeat, by default a join; `others` override its fields."""
    await ready(kafka.client, group)
    fields = {
        "group_id": group,
        "member_id": "me" if version else "",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
        **others,
    }
    return await kafka.client.ask(calls.CONSUMER_HEARTBEAT, version, **fields)


@pytest.mark.parametrize("version", range(2))
def test_consumer_protocol_member_is_assigned_and_described(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        answer = await beaten(kafka, version)
        assert (int(answer.error_code), answer.member_epoch) == (OK, 1)
        assert answer.member_id == "me" if version else len(answer.member_id) >= 22
        ((part,),) = [answer.assignment.topic_partitions]
        assert (part.topic_id.bytes, part.partitions) == (topic_id, (0, 1))
        own = [{"topic_id": topic_id, "partitions": (0, 1)}]
        again = await beaten(
            kafka,
            version,
            member_id=answer.member_id,
            member_epoch=1,
            rebalance_timeout=-1,
            subscribed_topic_names=None,
            topic_partitions=own,
        )
        assert (int(again.error_code), again.assignment) == (OK, None)
        described = await kafka.client.ask(
            calls.CONSUMER_DESCRIBE,
            version,
            group_ids=(GROUP, "nope"),
            include_authorized_operations=False,
        )
        group, none = described.groups
        assert (int(none.error_code), none.group_id) == (NOT_FOUND, "nope")
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
        assert group.assignor_name == "uniform"
        (member,) = group.members
        for assigned in (member.assignment, member.target_assignment):
            ((owned,),) = [assigned.topic_partitions]
            assert (owned.topic_name, owned.topic_id.bytes) == ("t", topic_id)
            assert owned.partitions == (0, 1)
        assert member.subscribed_topic_names == ("t",)
        if version >= 1:
            assert member.member_type == 1

    on_a_node(folder, main)


def test_consumer_protocol_errors_have_a_message(folder: str) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        nameless = await beaten(kafka, 1, member_id="")
        assert (int(nameless.error_code), "choose a UUID" in nameless.error_message) == (42, True)
        unknown = await beaten(kafka, 1, member_epoch=7)
        assert int(unknown.error_code) in (UNKNOWN_MEMBER, NOT_FOUND)
        assignor = await beaten(kafka, 1, server_assignor="mine")
        assert (int(assignor.error_code), "uniform" in assignor.error_message) == (112, True)

    on_a_node(folder, main)


def test_each_group_type_is_unknown_to_the_description_of_the_other(folder: str) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await alone(kafka.client)
        await beaten(kafka, 1, "other")
        (classic,) = (
            await kafka.client.ask(
                calls.CONSUMER_DESCRIBE,
                1,
                group_ids=(GROUP,),
                include_authorized_operations=False,
            )
        ).groups
        (consumer,) = (
            await kafka.client.ask(
                calls.DESCRIBE_GROUPS, 6, groups=("other",), include_authorized_operations=False
            )
        ).groups
        assert int(classic.error_code) == int(consumer.error_code) == NOT_FOUND
        assert "classic" in classic.error_message
        assert consumer.group_state == "Dead"

    on_a_node(folder, main)


def test_a_group_is_found_at_this_node(folder: str) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        found = await kafka.client.ask(
            calls.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("a", "b", "")
        )
        coordinators = [
            (each.key, int(each.error_code), each.node_id) for each in found.coordinators
        ]
        assert coordinators == [("a", OK, NODE), ("b", OK, NODE), ("", 24, -1)]

    on_a_node(folder, main)
