"""The audit log: authentications, denials and changes, one JSON object a line.

A denial is written at once. Equal ones that follow within a second are counted, and written as one
line with their number; beyond `DENIALS_MAX` different ones within a second, the others are only
counted. So a client cannot fill the disk, or push older lines out of the files.
"""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from ..metadata.acls import name_of
from ..metadata.authorization import Action
from ..runtime import ClientIdentity

DETAIL_MAX: Final = 2_000  # characters of a change
DENIALS_MAX: Final = 100  # different ones within a second that are written
NAME_MAX: Final = 249  # characters of a resource
WINDOW_S: Final = 1.0


class AuditLog:
    """The audit log of one node."""

    def __init__(self, write: Callable[[str], None], wall_ms: Callable[[], int]) -> None:
        """`write` takes one line, without its end."""
        self._write = write
        self._wall_ms = wall_ms
        self._denials: dict[Action, int] = {}  # written once; how many have followed
        self._others = 0  # denials beyond DENIALS_MAX
        self._timer: asyncio.TimerHandle | None = None

    def authenticated(self, client: ClientIdentity, *, listener: str, mechanism: str) -> None:
        """Record the authentication of a client."""
        self._line("authentication", client, listener=listener, mechanism=mechanism, outcome="ok")

    def refused(
        self, client: ClientIdentity, *, listener: str, mechanism: str, reason: str
    ) -> None:
        """Record a failed authentication."""
        self._line(
            "authentication",
            client,
            listener=listener,
            mechanism=mechanism,
            outcome="refused",
            reason=reason,
        )

    def denied(self, action: Action) -> None:
        """Record an action that is not authorized."""
        action = action._replace(name=action.name[:NAME_MAX])
        if action in self._denials:
            self._denials[action] += 1
            return
        if len(self._denials) < DENIALS_MAX:
            self._denials[action] = 0
            self._denial(action, 1)
        else:
            self._others += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._count)

    def changed(self, client: ClientIdentity, *, change: object, outcome: str) -> None:
        """Record a change of the metadata that a client has asked for. `outcome` is "ok", the
        name of an error, or "unknown"."""
        self._line(
            "change",
            client,
            operation=type(change).__name__,
            detail=repr(change)[:DETAIL_MAX],
            outcome=outcome,
        )

    def close(self) -> None:
        """Write the denials that were counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._count()

    def _count(self) -> None:
        self._timer = None
        denials, self._denials = self._denials, {}
        others, self._others = self._others, 0
        if others:
            self._line("denial", ClientIdentity("", ""), resource="others", count=others)
        for action, more in denials.items():
            if more:
                self._denial(action, more)

    def _denial(self, action: Action, count: int) -> None:
        self._line(
            "denial",
            ClientIdentity(action.principal, action.host),
            operation=name_of(action.operation),
            resource_type=name_of(action.type),
            resource=action.name,
            count=count,
        )

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
