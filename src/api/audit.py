"""The audit log: authentications, denials and changes, one JSON object a line.

A denial or a failed authentication is written at once. Equal ones that follow within a second are
counted, and written as one line with their number; beyond the limits of different ones within
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


class _Refusal(NamedTuple):
    """A denial or a failed authentication."""

    event: str
    client: ClientIdentity
    fields: tuple[tuple[str, str], ...]


class AuditLog:
    """The audit log of one node."""

    def __init__(self, write: Callable[[str], None], wall_ms: Callable[[], int]) -> None:
        """`write` takes one line, without its end."""
        self._write = write
        self._wall_ms = wall_ms
        self._refusals: dict[_Refusal, int] = {}  # written once; how many have followed
        self._written: Counter[tuple[str, str]] = Counter()  # by event and host
        self._others: Counter[str] = Counter()  # refusals beyond the limits, by event
        self._timer: asyncio.TimerHandle | None = None

    def authenticated(self, client: ClientIdentity, *, listener: str, mechanism: str) -> None:
        """Record the authentication of a client."""
        self._line("authentication", client, listener=listener, mechanism=mechanism, outcome="ok")

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
        self._refusal(_Refusal("authentication", client, tuple(fields.items())))

    def denied(self, action: Action) -> None:
        """Record an action that is not authorized."""
        fields = {
            "operation": name_of(action.operation),
            "resource_type": name_of(action.type),
            "resource": action.name[:NAME_MAX],
        }
        client = ClientIdentity(action.principal, action.host)
        self._refusal(_Refusal("denial", client, tuple(fields.items())))

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
        """Write the refusals that were counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._count()

    def _refusal(self, refusal: "_Refusal") -> None:
        if refusal in self._refusals:
            self._refusals[refusal] += 1
        elif (
            len(self._refusals) < REFUSALS_MAX
            and self._written[refusal.event, refusal.client.host] < REFUSALS_A_HOST
        ):
            self._refusals[refusal] = 0
            self._written[refusal.event, refusal.client.host] += 1
            self._refused(refusal, 1)
        else:
            self._others[refusal.event] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._count)

    def _count(self) -> None:
        self._timer = None
        refusals, self._refusals = self._refusals, {}
        others, self._others = self._others, Counter()
        self._written.clear()
        for event, count in others.items():
            self._line(event, ClientIdentity("", ""), resource="others", count=count)
        for refusal, more in refusals.items():
            if more:
                self._refused(refusal, more)

    def _refused(self, refusal: "_Refusal", count: int) -> None:
        self._line(refusal.event, refusal.client, **dict(refusal.fields), count=count)

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
