"""The lines of the audit log."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.api.audit import NAME_MAX, AuditLog, recorded
from quorumlog.broker.groups.requests import DeleteGroup, DeleteOffsets
from quorumlog.errors import GroupNotFound, TimedOut
from quorumlog.ids import TopicId
from quorumlog.metadata import AlterScramCredentials, CreateAcls, DeleteAcls, DeleteTopic
from quorumlog.metadata.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from quorumlog.metadata.authorization import Action
from quorumlog.metadata.scram_credentials import ScramCredential, ScramMechanism
from quorumlog.runtime import ClientIdentity, Runtime

ALICE = ClientIdentity("User:alice", "10.0.0.1")
WRITE = Action(ALICE.principal, ALICE.host, AclOperation.WRITE, AclResourceType.TOPIC, "orders\n{}")


def test_lines_that_cannot_be_written_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    is_full = True
    lines: list[str] = []

    def write(line: str) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        lines.append(line)

    async def main(runtime: Runtime) -> None:
        nonlocal is_full
        log = AuditLog(write, runtime.clock.wall_ms)
        for number in (1, 2):
            with recorded(log, ALICE, DeleteTopic(topic_id=TopicId(bytes([number]) * 16))):
                pass
        assert log.lines_lost == 2
        assert sum("audit.lines_lost" in each.msg for each in caplog.records) == 1
        is_full = False
        log.denied(WRITE)
        assert (len(lines), log.lines_lost) == (1, 2)
        log.close()

    simulation.run(main)


class Lines:
    """An audit log in memory."""

    def __init__(self, runtime: Runtime) -> None:
        self.lines: list[str] = []
        self.log = AuditLog(self.lines.append, runtime.clock.wall_ms)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the lines, parsed."""
        assert all("\n" not in line for line in self.lines)
        return [json.loads(line) for line in self.lines]


def test_equal_denials_within_a_second_are_one_line_with_their_number() -> None:
    async def main(runtime: Runtime) -> None:
        found = Lines(runtime)
        for _ in range(1_000):
            found.log.denied(WRITE)
        assert len(found.lines) == 1
        await asyncio.sleep(1.1)
        assert [row["count"] for row in found.rows] == [1, 999]
        assert found.rows[0] == {
            "time": found.rows[0]["time"],
            "event": "denial",
            "principal": "User:alice",
            "host": "10.0.0.1",
            "operation": "Write",
            "resource_type": "Topic",
            "resource": "orders\n{}",
            "count": 1,
        }
        found.log.denied(WRITE)
        found.log.denied(WRITE)
        found.log.close()
        assert [row["count"] for row in found.rows] == [1, 999, 1, 1]

    simulation.run(main)


def test_many_different_refusals_are_counted_and_long_names_truncated() -> None:
    async def main(runtime: Runtime) -> None:
        found = Lines(runtime)
        for number in range(5_000):
            found.log.denied(WRITE._replace(name=f"t{number}" + "x" * 30_000))
        assert len(found.lines) == 100
        assert sum(map(len, found.lines)) < 100_000
        await asyncio.sleep(1.1)
        assert found.rows[-1]["count"] == 4_900
        assert len(found.lines) == 101
        found.log.denied(WRITE)
        assert found.rows[-1]["resource"] == WRITE.name
        for user in ("x\n\x1b" * 10_000, ""):
            found.log.refused(
                ALICE, listener="gRPC", mechanism="PLAIN", reason="wrong", claimed_user=user
            )
        assert len(found.rows[-2]["claimed_user"]) == NAME_MAX
        assert "\x1b" not in found.lines[-2]
        assert "claimed_user" not in found.rows[-1]

    simulation.run(main)


def test_repeated_authentications_are_counted_and_refusals_hide_none() -> None:
    async def main(runtime: Runtime) -> None:
        found = Lines(runtime)
        for number in range(5_000):
            found.log.refused(
                ALICE, listener="gRPC", mechanism="PLAIN", reason="wrong", claimed_user=f"{number}"
            )
        refused = len(found.lines)
        for _ in range(1_000):
            found.log.authenticated(ALICE, listener="SASL_SSL", mechanism="PLAIN")
        assert [row["outcome"] for row in found.rows[refused:]] == ["ok"]
        found.log.close()
        assert [row["count"] for row in found.rows if row.get("outcome") == "ok"] == [1, 999]

    simulation.run(main)


def test_changes_and_authentications_never_have_a_secret() -> None:
    async def main(runtime: Runtime) -> None:
        found = Lines(runtime)
        credential = ScramCredential(
            salt=b"salt-bytes-here", iterations=4_096, stored_key=b"STORED", server_key=b"SERVER"
        )
        key = ("bob", ScramMechanism.SCRAM_SHA_256)
        change = AlterScramCredentials(upsertions=((key, credential),))
        found.log.changed(ALICE, change=change, outcome="ok")
        found.log.authenticated(ALICE, listener="SASL_SSL", mechanism="PLAIN")
        found.log.refused(ALICE, listener="gRPC", mechanism="PLAIN", reason="wrong")
        assert [row["event"] for row in found.rows] == ["change", *["authentication"] * 2]
        assert found.rows[0]["operation"] == "AlterScramCredentials"
        assert found.rows[0]["detail"] == {
            "deletions": [],
            "upsertions": [[["bob", "SCRAM-SHA-256"], {"iterations": 4_096}]],
        }
        for secret in ("STORED", "SERVER", "salt-bytes"):
            assert secret not in "".join(found.lines)

    simulation.run(main)


def test_failed_changes_are_bounded_and_equal_ones_counted() -> None:
    async def main(runtime: Runtime) -> None:
        found = Lines(runtime)
        for _ in range(1_000):
            with suppress(GroupNotFound), recorded(found.log, ALICE, DeleteGroup(group="g")):
                raise GroupNotFound("g: no such group")
        assert [row["outcome"] for row in found.rows] == ["GROUP_ID_NOT_FOUND"]
        await asyncio.sleep(1.1)
        assert [row.get("count") for row in found.rows] == [None, 999]
        assert found.rows[1] == found.rows[0] | {"time": found.rows[1]["time"], "count": 999}
        found.lines.clear()
        for number in range(1_000):
            group = f"{number}." + "x" * 7_000
            with suppress(GroupNotFound), recorded(found.log, ALICE, DeleteGroup(group=group)):
                raise GroupNotFound("no such group")
        written = len(found.lines)
        assert 10 < written < 50
        assert sum(map(len, found.lines)) < 100_000
        assert (found.rows[0]["part"], found.rows[0]["parts"]) == (1, 4)
        with suppress(TimedOut), recorded(found.log, ALICE, DeleteGroup(group="late")):
            raise TimedOut("the group may be deleted")
        with recorded(found.log, ALICE, DeleteGroup(group="deleted")):
            pass
        assert [row["detail"]["group"] for row in found.rows[written:]] == ["late", "deleted"]
        found.lines.clear()
        found.log.close()
        assert [(row["principal"], row["count"]) for row in found.rows] == [
            ("User:alice", 1_000 - written)
        ]

    simulation.run(main)


def test_changes_are_written_with_a_bound_for_the_parts_of_long_ones() -> None:
    async def main(runtime: Runtime) -> None:
        found = Lines(runtime)
        for number in range(10):
            partitions = tuple((f"{number}" + "t" * 200, each) for each in range(2_000))
            with recorded(found.log, ALICE, DeleteOffsets(group="g", partitions=partitions)):
                pass
        assert sum(map(len, found.lines)) < 2 << 20
        assert [row["part"] for row in found.rows].count(1) == 10

    simulation.run(main)


def test_detail_of_a_change_is_json_a_long_one_in_parts() -> None:
    async def main(runtime: Runtime) -> None:
        found = Lines(runtime)
        orders = ResourcePattern(AclResourceType.TOPIC, "orders", AclPatternType.PREFIXED)
        acl = Acl(orders, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
        for change in (
            CreateAcls(acls=(acl,)),
            DeleteAcls(filters=(AclFilter(principal="User:alice"),)),
            DeleteTopic(topic_id=TopicId(b"\x01" * 16)),
            DeleteOffsets(group="etl", partitions=(("orders", 0),)),
            CreateAcls(acls=(acl,) * 1_000),
        ):
            found.log.changed(ALICE, change=change, outcome="ok")
        created, deleted, topic, offsets, *large = (row["detail"] for row in found.rows)
        assert offsets == {"group": "etl", "partitions": [["orders", 0]]}
        assert created == {
            "acls": [
                {
                    "resource": {"type": "Topic", "name": "orders", "pattern": "Prefixed"},
                    "principal": "User:alice",
                    "host": "*",
                    "operation": "Read",
                    "permission": "Allow",
                }
            ]
        }
        assert (deleted["filters"][0]["principal"], deleted["filters"][0]["host"]) == (
            "User:alice",
            None,
        )
        assert topic == {"name": "", "topic_id": "01" * 16}
        assert json.loads("".join(large)) == {"acls": created["acls"] * 1_000}
        assert max(map(len, large)) == 2_000
        assert [(row["part"], row["parts"]) for row in found.rows[4:]] == [
            (number, len(large)) for number in range(1, len(large) + 1)
        ]

    simulation.run(main)
