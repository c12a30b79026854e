"""Findings about groups that hold records back from retention."""

from quorumlog.cli.explain import retention_holds
from quorumlog.clients.admin.descriptions import Topic
from quorumlog.clients.admin.groups import Group, GroupOffset
from quorumlog.errors import CoordinatorNotAvailable, GroupNotFound, QuorumlogError

from .descriptions import group, lone_partition

NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 3600 * 1000


def topic(holds: str, partitions: int = 2) -> Topic:
    return Topic(
        name="t",
        topic_id=b"",
        partitions=tuple(map(lone_partition, range(partitions))),
        configs={"retention.holds": holds},
    )


def offset(partition: int, committed: int | None, end: int | None) -> GroupOffset:
    return GroupOffset(
        topic="t", partition=partition, committed=committed, log_end_offset=end, member=None
    )


def texts(holds: str, found: Group | QuorumlogError, partitions: int = 2) -> list[str]:
    def describe(name: str) -> Group:
        if isinstance(found, QuorumlogError):
            raise found
        return found

    findings = retention_holds([topic(holds, partitions)], describe, now_ms=NOW_MS)
    return [each.text for each in findings]


NO_GROUP = GroupNotFound("there is no group g")


def test_hold_is_reported_with_bytes_offset_and_expiry() -> None:
    (text,) = texts(f"g@{NOW_MS + DAY_MS}/5000", group(offset(0, 4, 5), offset(1, 40, 100)))
    assert text.startswith(
        "t: group g holds 61 records that it has not read, most of them in t-1 from offset 40, "
        "until 2027-01-16T08:00:00.000+00:00, in partitions of up to 5.0 KB. "
    )
    assert "quorumlog configs alter t --delete retention.holds." in text


def test_a_group_that_has_committed_nothing_holds_everything() -> None:
    for found in (NO_GROUP, group(), group(offset(0, None, 5))):
        (text,) = texts(f"g@{NOW_MS + DAY_MS}/5000", found)
        assert text.startswith("t: group g has no committed offset and holds all records until")


def test_partitions_without_a_commit_are_held_completely() -> None:
    """They were added while the query was down, or no record of them was read."""
    (text,) = texts(f"g@{NOW_MS + DAY_MS}/5000", group(offset(1, 4, 5)), partitions=4)
    assert (
        "holds 1 record that it has not read, most of them in t-1 from offset 4, and all of "
        "partitions 0, 2, 3, which have no committed offset, until"
    ) in text


def test_everything_is_held_without_the_committed_offsets() -> None:
    away = CoordinatorNotAvailable("the partition has no leader")
    (text,) = texts(f"g@{NOW_MS + DAY_MS}/5000", away)
    assert text.startswith(
        "t: the offsets of group g are not available (the partition has no leader), so that all "
        "records are held until"
    )


def test_invalid_lease_has_a_reason() -> None:
    assert texts(f"g@{NOW_MS}/5", NO_GROUP) == [
        "t: group g holds no records: its lease expired 2027-01-15T08:00:00.000+00:00."
    ]
    (text,) = texts(f"g@{NOW_MS + 9 * DAY_MS}/5", NO_GROUP)
    assert "beyond the maximum. Correct the clock" in text


def test_without_holds_there_is_no_finding() -> None:
    assert texts("", NO_GROUP) == []
    assert texts("of a newer version", NO_GROUP) == []
