"""The audit log: authentications, denials and changes, one JSON object a line.

An event is written at once. Equal ones that follow within a second are counted, and written as one
line with their number; beyond the limits of different refusals within a second, the others are only
counted. A failed change counts as a refusal; any other change is always written. So refused
requests cannot fill the disk, or push older lines out of the files.

A line that cannot be written is counted, and its request is carried out.
"""

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ..errors import OutcomeUnknown, QuorumlogError, TimedOut, UnknownServerError
from ..metadata.acls import AclEnum, name_of
from ..metadata.authorization import Action
from ..metadata.scram_credentials import ScramCredential, ScramMechanism
from ..runtime import ClientIdentity
from ..runtime.client_bounds import address_block

DETAIL_MAX: Final = 2_000  # characters of a change
REFUSALS_MAX: Final = 1_000  # different ones within a second that are written
REFUSALS_A_HOST: Final = 100  # of them, for each kind and host, or principal of a change
FAILED_BYTES_MAX: Final = 64 << 10  # of failed changes of a principal within a second
DETAIL_BYTES_MAX: Final = 1 << 20  # of the further parts of its other changes
NAME_MAX: Final = 249  # characters of a resource or a claimed user
WINDOW_S: Final = 1.0

_LOG: Final = logging.getLogger("quorumlog.security")

_UNCERTAIN: Final = (OutcomeUnknown, TimedOut, UnknownServerError)
"""Errors of changes that may have been made."""


class _Event(NamedTuple):
    """An event of the log. A `detail` is the text of a JSON value, or its first part."""

    event: str
    client: ClientIdentity
    fields: tuple[tuple[str, Any], ...]
    digest: bytes = b""  # of a detail in parts


class AuditLog:
    """The audit log of one node."""

    def __init__(self, write: Callable[[str], None], wall_ms: Callable[[], int]) -> None:
        """`write` takes one line, without its end, and raises OSError if it cannot be written."""
        self.lines_lost = 0  # that could not be written
        self._is_failing = False  # the last line could not be written
        self._write = write
        self._wall_ms = wall_ms
        # written once; how many have followed, and the time of the last one
        self._events: dict[_Event, tuple[int, int]] = {}
        # by event and host, changes by principal
        self._written: Counter[tuple[str, str]] = Counter()
        # beyond the limits, by event and principal
        self._others: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()  # of details, by event and principal
        self._timer: asyncio.TimerHandle | None = None

    def authenticated(self, client: ClientIdentity, *, listener: str, mechanism: str) -> None:
        """Record the authentication of a client."""
        fields = {"listener": listener, "mechanism": mechanism, "outcome": "ok"}
        self._record(_Event("authentication", client, tuple(fields.items())), kind=None)

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
        event = _Event("authentication", client, tuple(fields.items()))
        self._record(event, kind=("authentication", address_block(client.host)))

    def denied(self, action: Action) -> None:
        """Record an action that is not authorized."""
        fields = {
            "operation": name_of(action.operation),
            "resource_type": name_of(action.type),
            "resource": action.name[:NAME_MAX],
        }
        client = ClientIdentity(action.principal, action.host)
        event = _Event("denial", client, tuple(fields.items()))
        self._record(event, kind=("denial", address_block(client.host)))

    def changed(
        self, client: ClientIdentity, *, change: object, outcome: str, is_failed: bool = False
    ) -> None:
        """Record a change that a client has requested. `outcome` is "ok", the name of an error, or
        "unknown"; with `is_failed` nothing has changed."""
        kind, failed = ("change", client.principal), ("failed change", client.principal)
        if is_failed and (self._is_full(kind) or self._bytes[failed] >= FAILED_BYTES_MAX):
            self._others[kind] += 1
            self._begin_window()
            return
        text, operation = json.dumps(_json(change)), type(change).__name__
        parts = [text[at : at + DETAIL_MAX] for at in range(0, len(text), DETAIL_MAX)]
        fields: dict[str, Any] = {"operation": operation, "detail": parts[0], "outcome": outcome}
        digest = b""
        if len(parts) > 1:
            fields |= {"part": 1, "parts": len(parts)}
            digest = hashlib.sha256(text.encode()).digest()
        event = _Event("change", client, tuple(fields.items()), digest)
        is_new = event not in self._events
        self._record(event, kind=kind if is_failed else None)
        if not is_new:
            return
        if is_failed:
            self._bytes[failed] += len(parts[0])
            return
        for number, part in enumerate(parts[1:], 2):
            self._bytes[kind] += len(part)
            if self._bytes[kind] > DETAIL_BYTES_MAX:
                break
            further = fields | {"detail": part, "part": number}
            self._line("change", client, self._wall_ms(), **further)

    def close(self) -> None:
        """Write the events that were counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._count()

    def _is_full(self, kind: tuple[str, str]) -> bool:
        return self._written.total() >= REFUSALS_MAX or self._written[kind] >= REFUSALS_A_HOST

    def _record(self, event: _Event, *, kind: tuple[str, str] | None) -> None:
        """Write or count an event. `kind` is that of the limits; None: always write."""
        if event in self._events:
            self._events[event] = self._events[event][0] + 1, self._wall_ms()
        elif kind is not None and self._is_full(kind):
            self._others[event.event, ""] += 1
        else:
            self._events[event] = 0, 0
            if kind is not None:
                self._written[kind] += 1
            self._write_event(event, 1, self._wall_ms())
        self._begin_window()

    def _begin_window(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._count)

    def _count(self) -> None:
        self._timer = None
        events, self._events = self._events, {}
        others, self._others = self._others, Counter()
        self._written.clear()
        self._bytes.clear()
        for (name, principal), count in others.items():
            client = ClientIdentity(principal, "")
            self._line(name, client, self._wall_ms(), resource="others", count=count)
        for event, (more, last_ms) in events.items():
            if more:
                self._write_event(event, more, last_ms)

    def _write_event(self, event: _Event, count: int, at_ms: int) -> None:
        fields = dict(event.fields)
        if event.event == "change":
            if "part" not in fields:
                fields["detail"] = json.loads(fields["detail"])
            if count == 1:
                self._line(event.event, event.client, at_ms, **fields)
                return
        self._line(event.event, event.client, at_ms, **fields, count=count)

    def _line(self, event: str, client: ClientIdentity, at_ms: int, **fields: object) -> None:
        when = datetime.fromtimestamp(at_ms / 1_000, UTC)
        row = {
            "time": when.isoformat(timespec="milliseconds"),
            "event": event,
            "principal": client.principal,
            "host": client.host,
            **fields,
        }
        try:
            self._write(json.dumps(row))
        except OSError as error:
            if not self._is_failing:
                _LOG.error("audit.lines_lost error=%s", error)
            self._is_failing = True
            self.lines_lost += 1
        else:
            self._is_failing = False


@contextmanager
def recorded(audit: AuditLog | None, client: ClientIdentity, change: object) -> Iterator[None]:
    """Record a change at the end of the block, with its outcome."""
    outcome, is_failed = "unknown", False
    try:
        yield
        outcome = "ok"
    except QuorumlogError as error:
        outcome, is_failed = error.name, not isinstance(error, _UNCERTAIN)
        raise
    finally:
        if audit is not None:
            audit.changed(client, change=change, outcome=outcome, is_failed=is_failed)


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
        return {
            each.name: _json(getattr(value, each.name)) for each in fields(value) if each.compare
        }
    for names in ("__struct_fields__", "_fields"):
        if hasattr(value, names):
            return {name: _json(getattr(value, name)) for name in getattr(value, names)}
    return [_json(each) for each in value] if isinstance(value, tuple) else value
