"""Findings about groups with lag."""

from dataclasses import replace

import pytest

from quorumlog.clients.admin.groups import Group, GroupMember, GroupOffset
from quorumlog.clients.admin.lag_findings import lags
from quorumlog.ids import TopicPartition

from .descriptions import group, lone_partition, partition

PARTITION = lone_partition()
MEMBER = GroupMember(
    member_id="m",
    instance_id="",
    client_id="c",
    host="h",
    rack="",
    epoch=3,
    is_classic=False,
    topics=("t",),
    pattern="",
    owned=(TopicPartition("t", 0),),
    target=(TopicPartition("t", 0),),
)


def group_with_member(*, committed: int | None, end: int) -> Group:
    return group(
        GroupOffset(topic="t", partition=0, committed=committed, log_end_offset=end, member=MEMBER),
        type="consumer",
        state="Stable",
        epoch=3,
        target_epoch=3,
        assignor="uniform",
        members=(MEMBER,),
    )


def reasons(committed: int | None, end: int) -> list[str]:
    now = group_with_member(committed=committed, end=end)
    found = lags(now, now, {("t", 0): PARTITION}, now_ms=0, between_ms=0)
    return [each.why for each in found]


def test_partition_without_records_has_no_lag_finding() -> None:
    assert reasons(None, 0) == []
    assert reasons(5, 5) == []
    (why,) = reasons(None, 1)
    assert "has not committed an offset" in why


def test_finding_names_the_silent_member_and_its_host() -> None:
    now = group_with_member(committed=3, end=9)
    member = replace(MEMBER, silent_ms=31_000)
    now = replace(now, offsets=(replace(now.offsets[0], member=member, commit_ms=1),))
    (finding,) = lags(now, now, {("t", 0): PARTITION}, now_ms=32_000, between_ms=0)
    assert "lag 6; its owner, member c, m at h, sent the last heartbeat 31 s ago" in finding.why
    assert "when the member's session expires" in finding.remedy


def test_committed_offset_beyond_the_log_end_is_a_finding() -> None:
    """A fetch there returns OffsetOutOfRange. A commit between the two descriptions does not
    count."""
    now = group_with_member(committed=1_000, end=30)
    (finding,) = lags(now, now, {("t", 0): PARTITION}, now_ms=0, between_ms=0)
    assert "committed offset 1,000 is beyond the log end offset 30" in finding.why
    assert "quorumlog groups reset-offsets g --to latest --topic t" in finding.remedy
    before = group_with_member(committed=30, end=30)
    assert lags(before, now, {("t", 0): PARTITION}, now_ms=0, between_ms=0) == []


# --- a member of two partitions ----------------------------------------------------------------


def group_of_reader(committed: int, *, other: int | None, commit_ms: int, now_ms: int) -> Group:
    """Return a group whose member committed `committed` in t-0 now, and `other` in t-1 at
    `commit_ms`."""
    first = GroupOffset(
        topic="t",
        partition=0,
        committed=committed,
        log_end_offset=9_000,
        member=MEMBER,
        commit_ms=now_ms,
    )
    second = replace(first, partition=1, committed=other, commit_ms=commit_ms)
    return group(first, second, type="consumer", state="Stable", members=(MEMBER,))


def finding_of_second(before: Group, now: Group, now_ms: int) -> str:
    partitions = {("t", number): lone_partition(number) for number in (0, 1)}
    _, finding = lags(before, now, partitions, now_ms=now_ms, between_ms=5_000)
    assert finding.partition == 1
    return finding.text


@pytest.mark.parametrize(
    ("other", "here"),
    [(0, "lag 9,000; "), (None, "no committed offset; ")],
    ids=["committed earlier", "never committed"],
)
def test_owner_that_reads_another_partition_is_not_reported_as_stuck(
    other: int | None, here: str
) -> None:
    commit_ms = -1 if other is None else 40_000
    before = group_of_reader(100, other=other, commit_ms=commit_ms, now_ms=395_000)
    now = group_of_reader(111, other=other, commit_ms=commit_ms, now_ms=400_000)
    text = finding_of_second(before, now, 400_000)
    assert text.startswith(
        f"t-1: {here}its owner, member c, m at h, is active (t-0, 2.2 records/s)"
    )
    assert ("has not committed here yet" if other is None else "here last 6 min ago") in text
    assert "it probably reads other partitions first. Wait until" in text
    assert "stuck" not in text
    unknown = replace(before, offsets=())  # the first values of a page: no earlier description
    assert "is active (t-0, last commit 0 s ago) but" in finding_of_second(unknown, now, 400_000)


def test_owner_without_progress_in_any_partition_is_reported_as_stuck() -> None:
    now = group_of_reader(100, other=0, commit_ms=40_000, now_ms=50_000)
    assert "it is paused or stuck at a record" in finding_of_second(now, now, 400_000)


def test_time_until_a_reader_catches_up_has_two_units() -> None:
    before = group_of_reader(100, other=8_000, commit_ms=1, now_ms=395_000)
    now = group_of_reader(101, other=8_001, commit_ms=1, now_ms=400_000)
    text = finding_of_second(before, now, 400_000)
    assert "reads 0.2 records/s, producers write 0.0 records/s" in text
    assert text.endswith("it catches up in about 1 h 23 min.")


# --- groups without members, such as those of a streaming query ---------------------------------


def group_of_query(committed: int, end: int) -> Group:
    return group(
        GroupOffset(
            topic="t",
            partition=0,
            committed=committed,
            log_end_offset=end,
            member=None,
            commit_ms=1_000,
        )
    )


def text_of_finding(before: Group, now: Group) -> str:
    (finding,) = lags(before, now, {("t", 0): partition()}, now_ms=9_000, between_ms=2_000)
    return finding.text


def test_finding_states_the_read_rate_of_a_query() -> None:
    text = text_of_finding(group_of_query(10, 100), group_of_query(30, 100))
    assert text == (
        "t-0: lag 70; a program outside of the group, such as a streaming query, reads 10.0 "
        "records/s, producers write 0.0 records/s: it catches up in about 7 s."
    )


def test_finding_about_a_growing_lag_of_a_query_advises_more_cores() -> None:
    text = text_of_finding(group_of_query(10, 100), group_of_query(20, 200))
    assert text.endswith("the lag grows. Give the query more cores, or the topic more partitions.")


def test_unchanged_offsets_of_a_group_without_members_are_a_finding() -> None:
    text = text_of_finding(group_of_query(10, 100), group_of_query(10, 100))
    assert "group g has no members" in text


def test_command_of_a_remedy_quotes_the_name_of_the_group() -> None:
    now = replace(group_with_member(committed=30, end=9), name="a; rm -rf b")
    (finding,) = lags(now, now, {("t", 0): PARTITION}, now_ms=0, between_ms=0)
    assert "reset-offsets 'a; rm -rf b' --to latest" in finding.remedy


def test_lag_is_unknown_while_the_leader_does_not_answer() -> None:
    now = group_with_member(committed=3, end=9)
    now = replace(now, offsets=(replace(now.offsets[0], log_end_offset=None, commit_ms=1),))
    (finding,) = lags(now, now, {("t", 0): PARTITION}, now_ms=2, between_ms=0)
    assert finding.why.startswith("the lag is unknown, since the leader")
