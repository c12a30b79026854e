"""Requests of many items."""

from quorumlog.frontends.kafka.item_results import repeated


class Name:
    """A name that counts how often it is compared."""

    compared = 0

    def __init__(self, name: str) -> None:
        self._name = name

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return isinstance(other, Name) and self._name == other._name


def test_duplicates_are_found_in_linear_time() -> None:
    """A request may have a million items: a quadratic comparison would block the loop for hours."""
    count = 1_000
    twice = repeated(Name(str(index % count)) for index in range(2 * count))
    assert len(twice) == count
    Name.compared = 0
    assert all(Name(str(index)) in twice for index in range(count))
    assert Name("other") not in twice
    assert Name.compared < 3 * count
