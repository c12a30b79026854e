"""Who looks when: each invariant is a small class with the hooks that it needs, and this is the
list of hooks. The harness calls them at the moments that they name; a hook raises Violation.

An invariant is O(1) an event: where it compares histories it compares running hashes.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from quorumlog.ids import Offset
from quorumlog.raftlog.log_view import Entry, SnapshotId
from quorumlog.raftlog.messages import Message
from quorumlog.raftlog.ready import HardState, ReadReady

from .clients import Read
from .disks import MemberDisk, SnapshotFile
from .member import Member

Delivered: TypeAlias = tuple[int, object, object, object]
"""(epoch, vote, log end, role) before a message was taken in."""


class Checks:
    """The hooks of all invariants, by moment."""

    __slots__ = (
        "appended",
        "applied",
        "commit_advanced",
        "delivered",
        "disk_appended",
        "disk_truncating",
        "finished",
        "installing",
        "read_ready",
        "role_changed",
        "sending",
        "settled",
        "snapshot_written",
        "started",
        "storing",
        "truncating",
        "voters_proposed",
    )

    def __init__(self, invariants: Iterable[object]) -> None:
        every = list(invariants)

        def hooks(moment: str) -> list[Any]:
            return [getattr(each, moment) for each in every if hasattr(each, moment)]

        # After every event at a member whose process runs.
        self.settled: list[Callable[[Member], None]] = hooks("settled")
        self.started: list[Callable[[Member], None]] = hooks("started")
        # Its role or epoch is another one.
        self.role_changed: list[Callable[[Member], None]] = hooks("role_changed")
        # (member, the high watermark before)
        self.commit_advanced: list[Callable[[Member, int], None]] = hooks("commit_advanced")
        # The core's log, as its rounds say: written or not.
        self.appended: list[Callable[[Member, Entry, int], None]] = hooks("appended")
        self.truncating: list[Callable[[Member, Offset], None]] = hooks("truncating")
        self.installing: list[Callable[[Member, SnapshotId], None]] = hooks("installing")
        # The disk, before it changes.
        self.storing: list[Callable[[Member, HardState], None]] = hooks("storing")
        self.disk_truncating: list[Callable[[MemberDisk, Offset], None]] = hooks("disk_truncating")
        self.disk_appended: list[Callable[[MemberDisk], None]] = hooks("disk_appended")
        # A committed range was applied; (member, end before).
        self.applied: list[Callable[[Member, int], None]] = hooks("applied")
        # A snapshot is durable, taken here or installed.
        self.snapshot_written: list[Callable[[Member, SnapshotId, SnapshotFile], None]] = hooks(
            "snapshot_written"
        )
        # The core took a change of voters; (member, the entry, high watermark before).
        self.voters_proposed: list[Callable[[Member, Entry], None]] = hooks("voters_proposed")
        # A message was taken in; (member, message, what was before).
        self.delivered: list[Callable[[Member, Message, Delivered], None]] = hooks("delivered")
        self.read_ready: list[Callable[[Member, ReadReady, Read], None]] = hooks("read_ready")
        self.finished: list[Callable[[], None]] = hooks("finished")
        # A message leaves, by its class.
        self.sending: dict[type[Any], list[Callable[[Member, Any], None]]] = {}
        for each in every:
            watched = getattr(each, "sending", {})
            for message, hook in watched.items():
                self.sending.setdefault(message, []).append(hook)
