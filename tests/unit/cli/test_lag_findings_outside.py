"""What is said of a group without members that moves all the same, as a streaming query's does."""

from quorumlog.cli.lag_findings import lags
from quorumlog.clients import Group, GroupOffset

from .test_findings import partition


def group(committed: int, end: int) -> Group:
    return Group(
        name="g",
        type="classic",
        state="Empty",
        coordinator=1,
        epoch=0,
        target_epoch=-1,
        assignor="",
        members=(),
        offsets=(
            GroupOffset(
                topic="t",
                partition=0,
                committed=committed,
                log_end_offset=end,
                member=None,
                commit_ms=1_000,
            ),
        ),
    )


def said(before: Group, now: Group) -> str:
    (finding,) = lags(before, now, {("t", 0): partition()}, now_ms=9_000, between_ms=2_000)
    return finding.text


def test_a_query_that_moves_is_told_by_its_rate() -> None:
    text = said(group(10, 100), group(30, 100))
    assert text == (
        "t-0: lag 70; a program outside of the group, such as a streaming query, reads 10 "
        "records/s, producers write 0 records/s: it catches up in about 7 s."
    )


def test_a_query_that_falls_behind_is_given_more_cores() -> None:
    text = said(group(10, 100), group(20, 200))
    assert text.endswith("the lag grows. Give the query more cores, or the topic more partitions.")


def test_a_group_that_stands_is_read_by_nobody() -> None:
    assert "group g has no members" in said(group(10, 100), group(10, 100))
