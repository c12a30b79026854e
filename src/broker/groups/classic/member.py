"""A member of a classic group, and the states that a group goes through."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..decision import Ticket
from ..records import StoredMember
from ..requests import JoinGroup, MemberDescription


class State(Enum):
    """Where a group stands; the values are the field's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members join
    COMPLETING = "CompletingRebalance"  # all have been told the generation, the leader assigns
    STABLE = "Stable"
    DEAD = "Dead"


COMES_FROM: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.EMPTY, State.COMPLETING, State.STABLE}),
    State.COMPLETING: frozenset({State.PREPARING}),
    State.STABLE: frozenset({State.COMPLETING}),
    State.DEAD: frozenset({State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE}),
}


@dataclass(slots=True, kw_only=True)
class Member:
    """A member; `Roster` alone changes its protocols."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # each name once, most wanted first
    assignment: bytes = b""  # of the last generation that was synced
    joining: Ticket | None = None  # its join that is not answered yet
    syncing: Ticket | None = None  # its sync that is not answered yet
    is_new: bool = False  # it has not been in a generation yet

    @property
    def brought_bytes(self) -> int:
        """What it is called and wants, about as it is stored."""
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        return sum(map(len, names)) + sum(len(content) for _, content in self.protocols)

    def subscription(self, protocol: str | None) -> bytes:
        """What it sent for a protocol; nothing where it has not got that."""
        return next((content for name, content in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        """The one of the candidates that it wants most; it has one of them."""
        return next(name for name, _ in self.protocols if name in candidates)

    def stored(self, protocol: str | None) -> StoredMember:
        """As the record of a generation has it."""
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
        """As onlookers see it."""
        return MemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            silent_ms=silent_ms,
            subscription=self.subscription(protocol),
            assignment=self.assignment,
        )


def joining(member_id: str, request: JoinGroup) -> Member:
    """The new member that a request speaks of."""
    return Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=offered(request.protocols),
        is_new=True,
    )


def rebalance_timeout_ms(request: JoinGroup) -> int:
    """How long the others wait for it; version 0 of the call says nothing: a session."""
    given = request.rebalance_timeout_ms
    return given if given > 0 else request.session_timeout_ms


def offered(protocols: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    """Each name once, the first one counts."""
    first: dict[str, bytes] = {}
    for name, content in protocols:
        first.setdefault(name, content)
    return tuple(first.items())


def restored(
    stored: StoredMember, protocol: str | None, protocols: tuple[tuple[str, bytes], ...] | None
) -> Member:
    """A member as its record has it; `protocols`: all that it offers, where that is known."""
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
        protocols=offered(protocols),
        assignment=stored.assignment,
    )
