"""Until when a broker knows all of the metadata."""

from quorumlog.metadata.knowledge import Knowledge


def known(knowledge: Knowledge) -> int | None:
    return knowledge.known_ms


def test_nothing_is_known_before_a_controller_has_said_where_the_metadata_end() -> None:
    knowledge = Knowledge()
    knowledge.applied(7)
    assert known(knowledge) is None


def test_what_was_committed_when_a_controller_was_asked_is_known_once_it_is_applied() -> None:
    knowledge = Knowledge()
    knowledge.told(1_000, 5)
    knowledge.applied(4)
    assert known(knowledge) is None
    knowledge.applied(5)
    assert known(knowledge) == 1_000
    knowledge.told(1_500, 5)
    knowledge.applied(5)
    assert known(knowledge) == 1_500


def test_who_is_always_a_bit_behind_knows_what_it_was_told_first() -> None:
    knowledge = Knowledge()
    for each in range(10):
        knowledge.told(1_000 + each, 5 + each)
    knowledge.applied(5)
    assert known(knowledge) == 1_000
    knowledge.applied(13)
    assert known(knowledge) == 1_000  # of those between nobody has kept when they were told
    knowledge.applied(14)
    assert known(knowledge) == 1_009


def test_who_applies_nothing_more_knows_nothing_newer() -> None:
    knowledge = Knowledge()
    knowledge.told(1_000, 5)
    knowledge.applied(5)
    for each in range(10):
        knowledge.told(2_000 + each, 6)
        knowledge.applied(5)
    assert known(knowledge) == 1_000
