"""The text of retention holds, and the validity of their leases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.settings.query_groups import (
    HOLD_GROUPS_MAX,
    HOLD_MS_MAX,
    HOLD_SKEW_MS,
    Hold,
    can_hold,
    holds_text,
    outdated,
    parse_holds,
)

NOW = 1_800_000_000_000

names = st.text("abcXYZ019._-", min_size=1, max_size=120)
holds = st.builds(Hold, names, st.integers(0, 10**15 - 1), st.integers(0, 2**63 - 1))


@given(st.lists(holds, max_size=HOLD_GROUPS_MAX))
def test_hold_round_trip(many: list[Hold]) -> None:
    assert parse_holds(holds_text(many)) == tuple(many)
    assert all(can_hold(each.group) for each in many)


@pytest.mark.parametrize("text", ["g", "g@1", "g@/1", "g@1/x", "@1/1", "a b@1/1", "g@-1/1"])
def test_invalid_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a hold"):
        parse_holds(text)


def of_groups(count: int) -> list[Hold]:
    return [Hold(f"g{number}", NOW, 1) for number in range(count)]


def test_too_many_are_refused() -> None:
    with pytest.raises(ValueError, match="17 groups have holds, the limit is 16"):
        parse_holds(holds_text(of_groups(17)))
    with pytest.raises(ValueError, match="33 holds exceed two for each group"):
        parse_holds(holds_text([*of_groups(16), *of_groups(16), *of_groups(1)]))


def test_every_group_at_the_limit_can_renew_its_lease() -> None:
    """The new hold is added before the old one is removed."""
    full = of_groups(HOLD_GROUPS_MAX)
    text = holds_text([*full, *(hold._replace(end_ms=NOW + 1) for hold in full)])
    assert len(parse_holds(text)) == 2 * HOLD_GROUPS_MAX


def test_a_lease_counts_until_its_end_and_never_for_more_than_seven_days() -> None:
    assert Hold("g", NOW + 1, 1).counts(NOW)
    assert not Hold("g", NOW, 1).counts(NOW)
    assert Hold("g", NOW + HOLD_MS_MAX + HOLD_SKEW_MS, 1).counts(NOW)
    assert not Hold("g", NOW + HOLD_MS_MAX + HOLD_SKEW_MS + 1, 1).counts(NOW)


def test_renewal_replaces_the_groups_own_hold_and_long_expired_ones() -> None:
    new, long_ago = Hold("g", NOW + 9, 2), NOW - HOLD_MS_MAX
    own = Hold("g", NOW + 1, 1)
    before = (Hold("a", NOW + 5, 1), Hold("b", long_ago, 1), own, Hold("c", long_ago + 1, 1))
    assert outdated(before, new, NOW) == (Hold("b", long_ago, 1), own)


def test_all_expired_holds_are_removed_for_one_more_group_at_the_limit() -> None:
    before = [*of_groups(HOLD_GROUPS_MAX - 1), Hold("a", NOW + 1, 1)]
    assert outdated(before, Hold("g", NOW + 9, 1), NOW) == tuple(before[:-1])
    assert outdated(before, Hold("a", NOW + 9, 1), NOW) == (before[-1],), "it still fits"


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a@b", "a/b", "é", "x" * 121])
def test_unencodable_group_names_are_detected(name: str) -> None:
    assert not can_hold(name)
