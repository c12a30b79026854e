"""A member of a classic group, and the group's states."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..decision import Ticket
from ..records import StoredMember
from ..requests import JoinGroup, MemberDescription


class State(Enum):
    """The state of a classic group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members join
    COMPLETING = "CompletingRebalance"  # members have joined; the leader assigns
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.EMPTY, State.COMPLETING, State.STABLE}),
    State.COMPLETING: frozenset({State.PREPARING}),
    State.STABLE: frozenset({State.COMPLETING}),
    State.DEAD: frozenset({State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE}),
}


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a classic group; only `Roster` changes `protocols`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # each name once, most preferred first
    assignment: bytes = b""  # of the last generation that was synced
    joining: Ticket | None = None  # its waiting join
    syncing: Ticket | None = None  # its waiting sync
    is_new: bool = False  # it has not been in a generation yet

    @property
    def brought_bytes(self) -> int:
        """The approximate stored size of its names and subscriptions."""
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        return sum(map(len, names)) + sum(len(content) for _, content in self.protocols)

    def subscription(self, protocol: str | None) -> bytes:
        """Return the subscription sent for a protocol, or no bytes."""
        return next((content for name, content in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        """Return the most preferred of the candidates; at least one is supported."""
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self, protocol: str | None) -> StoredMember:
        """Return the member's part of a generation's record."""
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.subscription(protocol),
            assignment=self.assignment,
        )

    def description(self, protocol: str | None, silent_ms: int) -> MemberDescription:
        """Return the member's description."""
        return MemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            silent_ms=silent_ms,
            subscription=self.subscription(protocol),
            assignment=self.assignment,
        )


def new_member(member_id: str, request: JoinGroup) -> Member:
    """Return the new member of a join request."""
    return Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=unique_protocols(request.protocols),
        is_new=True,
    )


def rebalance_timeout_ms(request: JoinGroup) -> int:
    """Return the rebalance timeout; version 0 of the request has none, so the session timeout."""
    given = request.rebalance_timeout_ms
    return given if given > 0 else request.session_timeout_ms


def unique_protocols(protocols: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Return the protocols without duplicate names; the first one counts."""
    first: dict[str, bytes] = {}
    for name, content in protocols:
        first.setdefault(name, content)
    return tuple(first.items())


def stored_member(
    stored: StoredMember, protocol: str | None, protocols: tuple[tuple[str, bytes], ...] | None
) -> Member:
    """Return the member of a stored record; `protocols`: all that it supports, if known."""
    if protocols is None:
        protocols = ((protocol or "", stored.subscription),)
    waits_ms = stored.rebalance_timeout_ms
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=waits_ms if waits_ms > 0 else stored.session_timeout_ms,
        session_timeout_ms=stored.session_timeout_ms,
        protocols=unique_protocols(protocols),
        assignment=stored.assignment,
    )
