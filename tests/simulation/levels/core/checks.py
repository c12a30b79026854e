"""The hooks of the invariants: each invariant is a small class with the hooks it needs.

The harness calls the hooks at the events they name; a hook raises Violation. An invariant costs
O(1) per event: histories are compared by running hashes.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from quorumlog.ids import Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import Entry, SnapshotId
from quorumlog.raftlog.messages import Message
from quorumlog.raftlog.ready import ReadReady

from .clients import PendingRead
from .disks import MemberDisk, SnapshotFile
from .member import CoreMember

Delivered: TypeAlias = tuple[int, object, object, object]
"""(epoch, vote, log end, role) before a message was processed."""


class Checks:
    """The hooks of all invariants, by event."""

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
        self.settled: list[Callable[[CoreMember], None]] = hooks("settled")
        self.started: list[Callable[[CoreMember], None]] = hooks("started")
        # Its role or epoch changed.
        self.role_changed: list[Callable[[CoreMember], None]] = hooks("role_changed")
        # (member, previous high watermark)
        self.commit_advanced: list[Callable[[CoreMember, int], None]] = hooks("commit_advanced")
        # The core's log by its rounds, written or not.
        self.appended: list[Callable[[CoreMember, Entry, int], None]] = hooks("appended")
        self.truncating: list[Callable[[CoreMember, Offset], None]] = hooks("truncating")
        self.installing: list[Callable[[CoreMember, SnapshotId], None]] = hooks("installing")
        # The disk, before it changes.
        self.storing: list[Callable[[CoreMember, HardState], None]] = hooks("storing")
        self.disk_truncating: list[Callable[[MemberDisk, Offset], None]] = hooks("disk_truncating")
        self.disk_appended: list[Callable[[MemberDisk], None]] = hooks("disk_appended")
        # A committed range was applied; (member, previous end).
        self.applied: list[Callable[[CoreMember, int], None]] = hooks("applied")
        # A snapshot is durable, taken here or installed.
        self.snapshot_written: list[Callable[[CoreMember, SnapshotId, SnapshotFile], None]] = hooks(
            "snapshot_written"
        )
        # The core accepted a change of voters; (member, entry).
        self.voters_proposed: list[Callable[[CoreMember, Entry], None]] = hooks("voters_proposed")
        # A message was processed; (member, message, previous state).
        self.delivered: list[Callable[[CoreMember, Message, Delivered], None]] = hooks("delivered")
        self.read_ready: list[Callable[[CoreMember, ReadReady, PendingRead], None]] = hooks(
            "read_ready"
        )
        self.finished: list[Callable[[], None]] = hooks("finished")
        # A message is sent, by its class.
        self.sending: dict[type[Any], list[Callable[[CoreMember, Any], None]]] = {}
        for each in every:
            watched = getattr(each, "sending", {})
            for message, hook in watched.items():
                self.sending.setdefault(message, []).append(hook)
