"""Level `coordinator`: the model agrees with the coordinator, and every kind of step is drawn."""

from collections import Counter

import pytest
from tests.simulation.checkers.violation import Violation
from tests.simulation.levels.coordinator.assignment import Assignee, check_target
from tests.simulation.levels.coordinator.level import play
from tests.simulation.runs import play_seed

from quorumlog.ids import TopicId

TOPIC = TopicId(b"t".ljust(16, b"-"))
COUNTS = {TOPIC: 4}


@pytest.mark.slow
def test_the_model_agrees_and_every_kind_of_step_is_drawn() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(6):
        outcome = play_seed("coordinator", seed, play)
        assert not outcome.failure, outcome.failure
        drawn.update(outcome.facts)
    kinds = {
        *("JoinGroup", "SyncGroup", "ClassicHeartbeat", "LeaveGroup", "ConsumerHeartbeat"),
        *("CommitOffsets", "CommitTransactionalOffsets", "WriteGroupMarker", "FetchOffsets"),
        *("DescribeGroup", "DeleteGroup", "DeleteOffsets"),
        *("at_once", "commits_at_once", "moves", "upgrades", "downgrades"),
    }
    assert {name for name in kinds if not drawn[name]} == set()


def member(name: str, before: set[int], after: set[int], *, topic: TopicId = TOPIC) -> Assignee:
    return Assignee(
        member_id=name,
        sort_key=name,
        topics=frozenset({topic}),
        before=frozenset((TOPIC, index) for index in before),
        after=frozenset((TOPIC, index) for index in after),
    )


def test_a_sound_target_obeys_the_rules() -> None:
    check_target("uniform", [member("a", {0, 1, 2, 3}, {0, 3}), member("b", set(), {1, 2})], COUNTS)
    check_target("range", [member("a", {2, 3}, {0, 1}), member("b", set(), {2, 3})], COUNTS)


@pytest.mark.parametrize(
    ("assignor", "members", "name"),
    [
        ("uniform", [member("a", set(), {0, 1, 2})], "Assignment"),
        ("uniform", [member("a", set(), {0, 1, 2, 3}), member("b", set(), {3})], "Assignment"),
        ("uniform", [member("a", set(), {0, 1, 2}), member("b", set(), {3})], "Uniform"),
        ("uniform", [member("a", {0, 1}, {2, 3}), member("b", {2}, {0, 1})], "Sticky"),
        ("range", [member("a", set(), {0, 2}), member("b", set(), {1, 3})], "Range"),
    ],
)
def test_a_target_that_breaks_a_rule_is_found(
    assignor: str, members: list[Assignee], name: str
) -> None:
    with pytest.raises(Violation, match=f"^{name}: "):
        check_target(assignor, members, COUNTS)
