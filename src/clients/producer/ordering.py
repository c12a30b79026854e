"""The order of one partition's batches: taking, completing and putting back. Pure.

Without sequence numbers a request carries as many batches as fit, and one request is in flight.
With numbers each request carries one batch, see `numbering`. A batch that is put back takes its
old place.
"""

from .batches import Batch, Part, PartitionQueue
from .numbering import Number


def take(queue: PartitionQueue, size_max: int, *, fresh_id: int, now_ms: int) -> Part | None:
    """Put the oldest closed batches in flight: up to `size_max` bytes, but at least one batch.

    Assigns sequence numbers, with producer id `fresh_id` if a new one is needed. Returns None if
    there is nothing to send. The queue must have its turn.
    """
    assert queue.has_turn, f"{queue.topic}-{queue.partition} has requests in flight"
    if not queue.closed:
        return None
    batch = queue.closed.popleft()
    taken, size = [batch], batch.size
    if queue.numbering is not None:
        _give_number(queue, batch, fresh_id=fresh_id, now_ms=now_ms)
    else:
        while queue.closed and not taken[-1].goes_alone:
            batch = queue.closed[0]
            if size + batch.size > size_max or batch.goes_alone:
                break
            taken.append(queue.closed.popleft())
            size += batch.size
    part = Part(queue, tuple(taken))
    for batch in part.batches:
        batch.part = part
    queue.parts.append(part)
    return part


def land(part: Part, *, has_failed: bool) -> bool:
    """Remove a part from flight; return False if it was not (a closing producer has taken it
    back)."""
    queue = part.queue
    if part not in queue.parts:
        return False
    queue.parts.remove(part)
    for batch in part.batches:
        batch.part = None
        batch.is_sent = False
    if has_failed and queue.numbering is not None:
        queue.numbering.is_trusted = False
        queue.is_recovering = True
    if not queue.parts:
        queue.is_recovering = False
    return True


def bring_back(part: Part) -> None:
    """Put the batches of a part that is no longer in flight in their old places."""
    closed = part.queue.closed
    for batch in part.batches:
        at = 0
        while at < len(closed) and closed[at].place < batch.place:
            at += 1
        closed.insert(at, batch)


def renumber(part: Part, *, is_fenced: bool) -> bool:
    """Prepare a batch for a retry after the leader refused its sequence number or epoch.

    `is_fenced`: another producer has its id. The retry waits for the batches before it or gets
    another number (rules 4 and 5 of `numbering`). Returns False if the batch may be stored and no
    number can prevent a duplicate.
    """
    (batch,), numbering = part.batches, part.queue.numbering
    assert numbering is not None, "only idempotent producers give numbers"
    if not _is_first(batch):
        return True
    is_present = numbering.gave(batch.number)
    if is_present and is_fenced:
        numbering.is_spent = True
    if batch.may_be_stored and (is_fenced or numbering.has_gap or not is_present):
        return False
    numbering.gave_up(batch.number)
    batch.number = None
    return True


def _is_first(batch: Batch) -> bool:
    """Return True if no earlier batch of the partition lacks an outcome."""
    queue = batch.queue
    oldest = queue.parts[0].batches[0] if queue.parts else batch
    waiting = queue.closed[0] if queue.closed else batch
    return min(oldest.place, waiting.place) >= batch.place


def divide(number: Number | None, parts: tuple[tuple[int, Batch], ...]) -> None:
    """Divide a batch's range of sequence numbers among its halves."""
    if number is not None:
        for first, part in parts:
            part.number = number.behind(first)


def _give_number(queue: PartitionQueue, batch: Batch, *, fresh_id: int, now_ms: int) -> None:
    numbering = queue.numbering
    assert numbering is not None, "the producer is idempotent"
    if not queue.parts:
        numbering.look_at_time(now_ms)
    if numbering.has_gap and numbering.gave(batch.number) and not batch.may_be_stored:
        batch.number = None
    if batch.number is None:
        if numbering.must_begin:
            numbering.begin(fresh_id)
            for other in queue.closed:  # their old numbers cannot follow the new one
                other.number = None
        batch.number = numbering.give(batch.count)
