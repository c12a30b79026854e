"""What the application has of a consumer's records: those that it was given and has not come back
from. Only what it came back from counts as done."""

from collections.abc import Collection, Mapping, Sequence

from ...offsets import Place
from ..record import ConsumerRecord


class Handed:
    """Of the asyncio face: what the newest reading call returned."""

    __slots__ = ("_count", "_last")

    def __init__(self) -> None:
        self._last: Sequence[ConsumerRecord] | Mapping[Place, int] = ()
        self._count = 0  # of reading calls that returned

    def out(self, last: Sequence[ConsumerRecord] | Mapping[Place, int]) -> None:
        """A reading call returns these records, or rows that begin at these offsets."""
        self._last = last
        self._count += 1

    def over(self) -> None:
        """The application has come back: it is done with them."""
        self._last = ()

    def pending(self) -> dict[Place, int]:
        """Return the first offset that the application is not done with, of each partition that it
        has records of."""
        if isinstance(self._last, Mapping):
            return dict(self._last)
        return first_offsets(self._last)

    def ahead(self) -> dict[Place, int]:
        """Return the first offset that it was not given, of each partition of which the consumer's
        position is further."""
        return {}

    def mark(self) -> object:
        """Return something that is another whenever the application has got on."""
        return self._count

    def recall(self, places: Collection[Place]) -> None:
        """These partitions are given back: what was not handed out of them shall not be, and the
        application shall come back soon."""


def first_offsets(records: Sequence[ConsumerRecord]) -> dict[Place, int]:
    """Return the first offset of each partition of records in their order."""
    found: dict[Place, int] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), record.offset)
    return found
