"""The time until which a broker's metadata is complete."""

from quorumlog.metadata.shell.session import MetadataFreshness


def known(freshness: MetadataFreshness) -> int | None:
    return freshness.fresh_ms


def test_metadata_is_not_fresh_before_a_controller_reports_its_end() -> None:
    freshness = MetadataFreshness()
    freshness.on_applied(7)
    assert known(freshness) is None


def test_metadata_is_fresh_as_of_the_request_once_the_reported_end_is_applied() -> None:
    freshness = MetadataFreshness()
    freshness.on_response(1_000, 5)
    freshness.on_applied(4)
    assert known(freshness) is None
    freshness.on_applied(5)
    assert known(freshness) == 1_000
    freshness.on_response(1_500, 5)
    freshness.on_applied(5)
    assert known(freshness) == 1_500


def test_lagging_broker_is_fresh_as_of_the_first_report_that_it_applied() -> None:
    freshness = MetadataFreshness()
    for each in range(10):
        freshness.on_response(1_000 + each, 5 + each)
    freshness.on_applied(5)
    assert known(freshness) == 1_000
    freshness.on_applied(13)
    assert known(freshness) == 1_000  # the reports in between were not kept
    freshness.on_applied(14)
    assert known(freshness) == 1_009


def test_broker_that_applies_nothing_becomes_no_fresher() -> None:
    freshness = MetadataFreshness()
    freshness.on_response(1_000, 5)
    freshness.on_applied(5)
    for each in range(10):
        freshness.on_response(2_000 + each, 6)
        freshness.on_applied(5)
    assert known(freshness) == 1_000
