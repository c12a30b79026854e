"""The offsets of open transactions, by producer and by group. Pure.

A commit in a transaction stages offsets (KIP-98). The marker of the transaction applies or drops
them. Until then they are pending: clients that require stable offsets wait for them.

An offset counts by the place of its record in the log, not by the place of its marker: compaction
keeps the newest record of a key, and a load must not find another offset in force. So an offset
that was committed after a pending one supersedes it, although the marker follows later.
"""

from .records import OffsetCommitted


class _Staged:
    """One pending offset."""

    __slots__ = ("is_superseded", "record", "serial")

    def __init__(self, record: OffsetCommitted, serial: int) -> None:
        self.record = record
        self.serial = serial  # ascends in log order
        self.is_superseded = False  # by an offset in force, with a later record


class PendingOffsets:
    """The pending offsets of the groups of one partition."""

    __slots__ = ("_by_group", "_by_producer", "_serial")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[str, str, int], _Staged]] = {}
        # group -> topic and partition -> producer id
        self._by_group: dict[str, dict[tuple[str, int], dict[int, _Staged]]] = {}
        self._serial = 0

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def groups(self) -> list[str]:
        """Return the groups that have pending offsets."""
        return list(self._by_group)

    def producers(self) -> list[int]:
        """Return the producers that have pending offsets."""
        return list(self._by_producer)

    def has_any(self, group: str) -> bool:
        """Return True if the group has pending offsets."""
        return group in self._by_group

    def places(self, group: str) -> list[tuple[str, int]]:
        """Return topic and partition of each pending offset of a group, each once."""
        return list(self._by_group.get(group, ()))

    def at(self, group: str, topic: str, partition: int) -> list[OffsetCommitted]:
        """Return the pending offsets of one partition, by producer."""
        found = self._by_group.get(group, {}).get((topic, partition), {})
        return [staged.record for staged in found.values()]

    def of_topic(self, topic: str) -> list[tuple[str, int]]:
        """Return group and partition of each pending offset of a topic, each once."""
        return [
            (group, partition)
            for group, places in self._by_group.items()
            for name, partition in places
            if name == topic
        ]

    # --- changes ----------------------------------------------------------------------------------

    def stage(self, producer_id: int, record: OffsetCommitted) -> None:
        """Add an offset to the transaction of a producer; it replaces the former one of the same
        partition."""
        staged = _Staged(record, self._serial)
        self._serial += 1
        place = (record.topic, record.partition)
        self._by_producer.setdefault(producer_id, {})[(record.group, *place)] = staged
        self._by_group.setdefault(record.group, {}).setdefault(place, {})[producer_id] = staged

    def supersede(self, group: str, topic: str, partition: int) -> None:
        """Record that an offset committed outside of transactions is newer than the pending ones of
        its partition."""
        for staged in self._by_group.get(group, {}).get((topic, partition), {}).values():
            # sometimes: a plain commit supersedes a pending one
            staged.is_superseded = True

    def drop(self, group: str, topic: str, partition: int) -> bool:
        """Drop the pending offsets of one partition; return False if there are none."""
        places = self._by_group.get(group, {})
        producers = places.pop((topic, partition), None)
        if producers is None:
            return False
        for producer_id in producers:
            _discard(self._by_producer, producer_id, (group, topic, partition))
        if not places:
            del self._by_group[group]
        return True

    def end(self, producer_id: int, *, is_commit: bool) -> tuple[list[OffsetCommitted], list[str]]:
        """End the transaction of a producer. Return the offsets that take effect, in log order, and
        the groups that had pending offsets."""
        ended = self._by_producer.pop(producer_id, {})
        applied: list[OffsetCommitted] = []
        groups: dict[str, None] = {}
        for (group, topic, partition), staged in ended.items():
            groups[group] = None
            others = self._by_group[group][(topic, partition)]
            del others[producer_id]
            if is_commit and not staged.is_superseded:
                applied.append(staged.record)
                for other in others.values():
                    other.is_superseded = other.is_superseded or other.serial < staged.serial
            if not others:
                del self._by_group[group][(topic, partition)]
                if not self._by_group[group]:
                    del self._by_group[group]
        return applied, list(groups)

    def check_invariants(self) -> None:
        """Raise AssertionError unless these hold, by number; O(pending offsets).

        1. Both views have the same offsets.
        2. No part of a view is empty.
        3. The offsets of a producer have serials of their own, below the next one.
        """
        by_producer = {
            (producer_id, *key): staged
            for producer_id, offsets in self._by_producer.items()
            for key, staged in offsets.items()
        }
        by_group = {
            (producer_id, group, *place): staged
            for group, places in self._by_group.items()
            for place, producers in places.items()
            for producer_id, staged in producers.items()
        }
        assert by_producer == by_group, (
            f"pending offsets invariant 1: {sorted(by_producer)} by producer, {sorted(by_group)}"
            " by group"
        )
        parts = [
            *self._by_producer.values(),
            *self._by_group.values(),
            *(producers for places in self._by_group.values() for producers in places.values()),
        ]
        assert all(parts), "pending offsets invariant 2: a part is empty"
        serials = [staged.serial for staged in by_producer.values()]
        assert len({*serials, self._serial}) == len(serials) + 1, (
            f"pending offsets invariant 3: serials {serials}, the next one is {self._serial}"
        )


def _discard(
    by_producer: dict[int, dict[tuple[str, str, int], _Staged]],
    producer_id: int,
    key: tuple[str, str, int],
) -> None:
    offsets = by_producer[producer_id]
    del offsets[key]
    if not offsets:
        del by_producer[producer_id]
