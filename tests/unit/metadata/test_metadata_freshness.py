"""Until when a broker knows all of the metadata."""

from quorumlog.metadata.shell.session import MetadataFreshness


def known(freshness: MetadataFreshness) -> int | None:
    return freshness.fresh_ms


def test_nothing_is_known_before_a_controller_has_said_where_the_metadata_end() -> None:
    freshness = MetadataFreshness()
    freshness.on_applied(7)
    assert known(freshness) is None


def test_what_was_committed_when_a_controller_was_asked_is_known_once_it_is_applied() -> None:
    freshness = MetadataFreshness()
    freshness.on_response(1_000, 5)
    freshness.on_applied(4)
    assert known(freshness) is None
    freshness.on_applied(5)
    assert known(freshness) == 1_000
    freshness.on_response(1_500, 5)
    freshness.on_applied(5)
    assert known(freshness) == 1_500


def test_who_is_always_a_bit_behind_knows_what_it_was_told_first() -> None:
    freshness = MetadataFreshness()
    for each in range(10):
        freshness.on_response(1_000 + each, 5 + each)
    freshness.on_applied(5)
    assert known(freshness) == 1_000
    freshness.on_applied(13)
    assert known(freshness) == 1_000  # of those between nobody has kept when they were told
    freshness.on_applied(14)
    assert known(freshness) == 1_009


def test_who_applies_nothing_more_knows_nothing_newer() -> None:
    freshness = MetadataFreshness()
    freshness.on_response(1_000, 5)
    freshness.on_applied(5)
    for each in range(10):
        freshness.on_response(2_000 + each, 6)
        freshness.on_applied(5)
    assert known(freshness) == 1_000
