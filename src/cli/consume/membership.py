"""Consumption as a member of a consumer group, from its committed offsets."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from ...clients.times import FromEnd
from .reader import ReadBounds, explain_out_of_range, read_on
from .writers import fill

if TYPE_CHECKING:
    from ...clients.blocking import Log
    from ...clients.consumer.record import ConsumerRecord
    from ...ids import TopicPartition
    from .record_files import RecordFile


def check_group_options(bounds: ReadBounds, partitions: Sequence[int]) -> None:
    """Raise BadParameter for options that contradict membership in a group."""
    named = {
        "--partition": bool(partitions),
        "--to": bounds.end is not None,
        "--until-end": bounds.until_end,
        "--from with records before the end": isinstance(bounds.start, FromEnd),
    }
    for option, is_given in named.items():
        if is_given:
            raise typer.BadParameter(
                f"--group assigns partitions and offsets; remove {option} or --group; --timeout "
                "and --max stop the command"
            )


def read_as_member(
    log: "Log", topics: Sequence[str], bounds: ReadBounds, group: str
) -> "Iterator[list[ConsumerRecord]]":
    """Yield records of the assigned partitions as they arrive. Each list is committed when the next
    one is requested, and at the end, so that records that failed to be written are not committed.
    """
    assert not isinstance(bounds.start, FromEnd), "excluded by check_group_options"
    consumer = log.group_consumer(
        group, topics, start=bounds.start, isolation_level=bounds.isolation_level
    )
    with consumer, explain_out_of_range():
        yield from read_on(consumer, bounds)


def fill_as_member(
    log: "Log", topics: Sequence[str], bounds: ReadBounds, group: str, file: "RecordFile"
) -> None:
    """Write records of the assigned partitions to a file that is readable only after it is closed,
    and commit them then. A partition that is revoked before is not committed; its next owner reads
    those records again."""
    assert not isinstance(bounds.start, FromEnd), "excluded by check_group_options"

    def forget(revoked: "list[TopicPartition]") -> None:
        for partition in revoked:
            file.ends.pop(partition, None)

    consumer = log.group_consumer(
        group,
        topics,
        start=bounds.start,
        auto_commit=False,
        isolation_level=bounds.isolation_level,
        on_revoked=forget,
    )
    with consumer, explain_out_of_range():
        try:
            fill(file, read_on(consumer, bounds))
        finally:
            if file.is_whole and file.ends:
                consumer.commit(file.ends)
