"""Reading as a member of a consumer group: what the group gives, from where it has got to."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from ..times import FromEnd
from .reading import Stretch, places_explained, read_on
from .receiving import fill

if TYPE_CHECKING:
    from ...clients import ConsumerRecord
    from ...clients.blocking import Log
    from .record_files import RecordFile


def check_group_options(stretch: Stretch, partitions: Sequence[int]) -> None:
    """Raise a usage error where what is asked for is the group's to say."""
    named = {
        "--partition": bool(partitions),
        "--to": stretch.end is not None,
        "--until-end": stretch.until_end,
        "--from with records before the end": isinstance(stretch.start, FromEnd),
    }
    for option, is_given in named.items():
        if is_given:
            raise typer.BadParameter(
                f"a group says which partitions are read, and from where: leave out {option} or "
                "--group; --timeout and --max end the reading"
            )


def read_as_member(
    log: "Log", topics: Sequence[str], stretch: Stretch, group: str
) -> "Iterator[list[ConsumerRecord]]":
    """Yield what the group gives, as it comes. What was yielded is committed when the next is asked
    for, and at the end: what could not be written is not."""
    assert not isinstance(stretch.start, FromEnd), "checked before"
    consumer = log.consumer(topics, group=group, start=stretch.start)
    with consumer, places_explained():
        yield from read_on(consumer, stretch)


def fill_as_member(
    log: "Log", topics: Sequence[str], stretch: Stretch, group: str, file: "RecordFile"
) -> None:
    """Write what the group gives into a file of which nothing can be read before it is closed: what
    is in it is committed then, and not before. A partition that goes to another member meanwhile is
    read again by that one."""
    assert not isinstance(stretch.start, FromEnd), "checked before"

    def forget(places: list[tuple[str, int]]) -> None:
        for place in places:
            file.ends.pop(place, None)

    consumer = log.consumer(
        topics, group=group, start=stretch.start, auto_commit=False, on_revoked=forget
    )
    with consumer, places_explained():
        try:
            fill(file, read_on(consumer, stretch))
        finally:
            if file.is_whole and file.ends:
                consumer.commit(file.ends)
