"""The disk usage of partitions on this broker."""

import asyncio
from collections.abc import Collection, Mapping

from ...errors import QuorumlogError, TimedOut
from ...runtime import Clock
from ...storage import Log
from ..requests import LogSize
from .replica import Replica


async def log_sizes(
    clock: Clock,
    replicas: Mapping[tuple[str, int], Replica],
    topics: Collection[str],
    *,
    timeout_ms: int | None,
) -> list[LogSize]:
    """Return the disk usage of the partitions of some topics, or (none named) of all, by ascending
    topic and index.

    Closed logs are opened one by one. Logs that are not open at the timeout have an error instead.
    None: no timeout.
    """
    end_ms = None if timeout_ms is None else clock.now_ms() + timeout_ms
    wanted = sorted(key for key in replicas if not topics or key[0] in topics)
    sizes = []
    for topic, index in wanted:
        replica = replicas.get((topic, index))
        if replica is None:
            continue  # deleted while this call waited
        try:
            log = await _opened_by(replica, None if end_ms is None else end_ms - clock.now_ms())
        except QuorumlogError as error:
            sizes.append(LogSize(topic=topic, partition=index, error=error))
            continue
        sizes.append(
            LogSize(
                topic=topic,
                partition=index,
                size_bytes=log.size_bytes,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
            )
        )
    return sizes


async def _opened_by(replica: Replica, left_ms: int | None) -> Log:
    """Return the log if it opens in time. An open continues after the timeout, but none is started
    then. Raises TimedOut."""
    if left_ms is not None and left_ms <= 0 and not replica.is_open:
        raise _timed_out()
    try:
        async with asyncio.timeout(None if left_ms is None else max(left_ms, 0) / 1000):
            return await replica.opened()
    except TimeoutError:
        raise _timed_out() from None


def _timed_out() -> TimedOut:
    return TimedOut("the log was not opened in time; retry, or name fewer topics")
