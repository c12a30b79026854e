"""What is said of a group that is behind, or only looks so."""

from dataclasses import replace

from quorumlog.cli.lag_findings import lags
from quorumlog.clients import Group, GroupMember, GroupOffset, Partition

PARTITION = Partition(
    partition=0,
    leader=1,
    leader_epoch=0,
    partition_epoch=0,
    replicas=(1,),
    isr=(1,),
    min_isr=1,
    elr=(),
    last_known_elr=(),
    adding=(),
    removing=(),
    recovering=False,
)
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
    owned=(("t", 0),),
    target=(("t", 0),),
)


def group(*, committed: int | None, end: int) -> Group:
    offset = GroupOffset(
        topic="t", partition=0, committed=committed, log_end_offset=end, member=MEMBER
    )
    return Group(
        name="g",
        type="consumer",
        state="Stable",
        coordinator=1,
        epoch=3,
        target_epoch=3,
        assignor="uniform",
        members=(MEMBER,),
        offsets=(offset,),
    )


def said(committed: int | None, end: int) -> list[str]:
    now = group(committed=committed, end=end)
    found = lags(now, now, {("t", 0): PARTITION}, now_ms=0, between_ms=0)
    return [each.why for each in found]


def test_a_partition_without_a_record_is_not_what_a_member_is_stuck_with() -> None:
    assert said(None, 0) == []
    assert said(5, 5) == []
    (why,) = said(None, 1)
    assert "has not committed an offset" in why


def test_a_member_that_is_not_heard_of_is_named_with_its_host() -> None:
    now = group(committed=3, end=9)
    member = replace(MEMBER, silent_ms=31_000)
    now = replace(now, offsets=(replace(now.offsets[0], member=member, commit_ms=1),))
    (finding,) = lags(now, now, {("t", 0): PARTITION}, now_ms=32_000, between_ms=0)
    assert "lag 6; its owner, member c, m at h, sent the last heartbeat 31 s ago" in finding.why
    assert "when the member's session expires" in finding.remedy


def test_an_offset_behind_the_logs_end_is_not_taken_for_well() -> None:
    """Whoever reads there is told OffsetOutOfRange; what was committed while it was looked is not
    meant."""
    now = group(committed=1_000, end=30)
    (finding,) = lags(now, now, {("t", 0): PARTITION}, now_ms=0, between_ms=0)
    assert "committed offset 1,000 is beyond the log end offset 30" in finding.why
    assert "quorumlog groups reset-offsets g --to latest --topic t" in finding.remedy
    before = group(committed=30, end=30)
    assert lags(before, now, {("t", 0): PARTITION}, now_ms=0, between_ms=0) == []
