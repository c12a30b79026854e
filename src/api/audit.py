"""The audit log: authentications, denials and changes, one JSON object a line.

A denial or an authentication is written at once. Equal ones that follow within a second are
counted, and written as one line with their number; beyond the limits of different refusals within
a second, the others are only counted. So a client cannot fill the disk, or push older lines out of
the files.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ..errors import QuorumlogError
from ..metadata.acls import AclEnum, name_of
from ..metadata.authorization import Action
from ..metadata.scram_credentials import ScramCredential, ScramMechanism
from ..runtime import ClientIdentity

DETAIL_MAX: Final = 2_000  # characters of a change
REFUSALS_MAX: Final = 1_000  # different ones within a second that are written
REFUSALS_A_HOST: Final = 100  # of them, for each kind and host
NAME_MAX: Final = 249  # characters of a resource or a claimed user
WINDOW_S: Final = 1.0


class _Event(NamedTuple):
    """A denial or an authentication."""

    event: str
    client: ClientIdentity
    fields: tuple[tuple[str, str], ...]


class AuditLog:
    """The audit log of one node."""

    def __init__(self, write: Callable[[str], None], wall_ms: Callable[[], int]) -> None:
        """`write` takes one line, without its end."""
        self._write = write
        self._wall_ms = wall_ms
        self._events: dict[_Event, int] = {}  # written once; how many have followed
        self._written: Counter[tuple[str, str]] = Counter()  # by event and host
        self._others: Counter[str] = Counter()  # beyond the limits, by event
        self._timer: asyncio.TimerHandle | None = None

    def authenticated(self, client: ClientIdentity, *, listener: str, mechanism: str) -> None:
        """Record the authentication of a client."""
        fields = {"listener": listener, "mechanism": mechanism, "outcome": "ok"}
        self._record(_Event("authentication", client, tuple(fields.items())), is_bounded=False)

    def refused(
        self,
        client: ClientIdentity,
        *,
        listener: str,
        mechanism: str,
        reason: str,
        claimed_user: str = "",
    ) -> None:
        """Record a failed authentication. `claimed_user` is the name that the client sent, "" if
        there is none."""
        fields = {
            "listener": listener,
            "mechanism": mechanism,
            "outcome": "refused",
            "reason": reason[:DETAIL_MAX],
        }
        if claimed_user:
            fields["claimed_user"] = claimed_user[:NAME_MAX]
        self._record(_Event("authentication", client, tuple(fields.items())))

    def denied(self, action: Action) -> None:
        """Record an action that is not authorized."""
        fields = {
            "operation": name_of(action.operation),
            "resource_type": name_of(action.type),
            "resource": action.name[:NAME_MAX],
        }
        client = ClientIdentity(action.principal, action.host)
        self._record(_Event("denial", client, tuple(fields.items())))

    def changed(self, client: ClientIdentity, *, change: object, outcome: str) -> None:
        """Record a change that a client has requested. `outcome` is "ok", the name of an error, or
        "unknown"."""
        detail, operation = _json(change), type(change).__name__
        text = json.dumps(detail)
        if len(text) <= DETAIL_MAX:
            self._line("change", client, operation=operation, detail=detail, outcome=outcome)
            return
        parts = [text[at : at + DETAIL_MAX] for at in range(0, len(text), DETAIL_MAX)]
        for number, part in enumerate(parts, 1):
            place = {"part": number, "parts": len(parts)}
            self._line("change", client, operation=operation, detail=part, outcome=outcome, **place)

    def close(self) -> None:
        """Write the events that were counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._count()

    def _record(self, event: _Event, *, is_bounded: bool = True) -> None:
        kind = event.event, event.client.host
        if event in self._events:
            self._events[event] += 1
        elif is_bounded and (
            self._written.total() >= REFUSALS_MAX or self._written[kind] >= REFUSALS_A_HOST
        ):
            self._others[event.event] += 1
        else:
            self._events[event] = 0
            self._written[kind] += is_bounded
            self._write_event(event, 1)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._count)

    def _count(self) -> None:
        self._timer = None
        events, self._events = self._events, {}
        others, self._others = self._others, Counter()
        self._written.clear()
        for name, count in others.items():
            self._line(name, ClientIdentity("", ""), resource="others", count=count)
        for event, more in events.items():
            if more:
                self._write_event(event, more)

    def _write_event(self, event: _Event, count: int) -> None:
        self._line(event.event, event.client, **dict(event.fields), count=count)

    def _line(self, event: str, client: ClientIdentity, **fields: object) -> None:
        when = datetime.fromtimestamp(self._wall_ms() / 1_000, UTC)
        row = {
            "time": when.isoformat(timespec="milliseconds"),
            "event": event,
            "principal": client.principal,
            "host": client.host,
            **fields,
        }
        self._write(json.dumps(row))


@contextmanager
def recorded(audit: AuditLog | None, client: ClientIdentity, change: object) -> Iterator[None]:
    """Record a change at the end of the block, with its outcome."""
    outcome = "unknown"
    try:
        yield
        outcome = "ok"
    except QuorumlogError as error:
        outcome = error.name
        raise
    finally:
        if audit is not None:
            audit.changed(client, change=change, outcome=outcome)


def _json(value: object) -> Any:
    """Return a value of a command in the types of JSON, without keys of passwords."""
    if isinstance(value, ScramCredential):
        return {"iterations": value.iterations}
    if isinstance(value, ScramMechanism):
        return value.sasl_name
    if isinstance(value, AclEnum):
        return name_of(value)
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value):
        return {each.name: _json(getattr(value, each.name)) for each in fields(value)}
    for names in ("__struct_fields__", "_fields"):
        if hasattr(value, names):
            return {name: _json(getattr(value, name)) for name in getattr(value, names)}
    return [_json(each) for each in value] if isinstance(value, tuple) else value
