"""Requests of many parts."""

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


def test_what_is_named_twice_is_found_without_comparing_each_with_each() -> None:
    """A request may have a million parts: the square of that would hold the loop up for hours."""
    count = 1_000
    twice = repeated(Name(str(index % count)) for index in range(2 * count))
    assert len(twice) == count
    Name.compared = 0
    assert all(Name(str(index)) in twice for index in range(count))
    assert Name("other") not in twice
    assert Name.compared < 3 * count
