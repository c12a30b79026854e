"""Level `groups`: groups of every kind of member hold on clusters under faults. `make simulate
LEVEL=groups` plays more seeds, each under two hash seeds."""

from dataclasses import replace

import pytest
from tests.simulation.levels.groups.level import play
from tests.simulation.levels.groups.plan import PROTOCOL_MIXES, GroupsPlan, MemberKind, draw_groups
from tests.simulation.runs import play_seed

from quorumlog.simulation.entropy import SimEntropy


@pytest.mark.long
def test_offsets_committed_in_transactions_survive_a_minute_of_faults() -> None:
    outcome = play_seed("groups", 7, play)
    assert not outcome.failure, outcome.failure
    assert outcome.facts["committed"] > 10
    assert outcome.facts["aborted"] > 10
    assert outcome.facts["fetches"] > 10


def drawn(count: int) -> list[GroupsPlan]:
    """The plans of so many seeds."""
    return [draw_groups(SimEntropy(f"seed/{seed}"), ["a", "b"]) for seed in range(count)]


def test_every_kind_of_member_and_every_cast_is_drawn() -> None:
    groups = [group for plan in drawn(100) for group in plan.groups]
    casts = {tuple(dict.fromkeys(member.kind for member in group.members)) for group in groups}
    assert set(PROTOCOL_MIXES) <= casts
    members = [member for group in groups for member in group.members]
    assert {member.kind for member in members} == set(MemberKind)
    assert any(member.is_twin for member in members)
    assert any(member.instance_id and not member.is_twin for member in members)
    assert {group.auto_commit for group in groups} == {False, True}


def test_machines_have_names_of_their_own_and_twins_share_a_static_name() -> None:
    for plan in drawn(100):
        names = [member.name for member in plan.members]
        assert len(set(names)) == len(names)
        for group in plan.groups:
            for twin in (member for member in group.members if member.is_twin):
                others = [one for one in group.members if one.instance_id == twin.instance_id]
                assert [replace(one, name="", is_twin=False) for one in others] == [
                    replace(twin, name="", is_twin=False)
                ] * 2
