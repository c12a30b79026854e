"""Consumer groups: who reads which partition, and how far a group has read.

A group lives in one partition of `__consumer_offsets`; the leader of that is its coordinator. All
decisions are pure: a `GroupShard` holds the groups of one partition, takes requests and the time,
and says what to store and what to answer (`decision`). The shell (`shell/`) stores it and lets an
answer go once everything that it rests on is committed. Two protocols are two faces of a group:
`classic/`, in which a member shares the partitions out, and `consumer/` (KIP-848), in which the
coordinator does.

Names are loaded at their first use: `requests` and `records` take their time, and a broker starts
without them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decision import Answered, Decision, Failed, Reply, Ticket
    from .requests import GroupRequest

__all__ = ["Answered", "Decision", "Failed", "GroupRequest", "Reply", "Ticket"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a name of `__all__` at its first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        home = ".requests" if name == "GroupRequest" else ".decision"
        return getattr(import_module(home, __name__), name)
