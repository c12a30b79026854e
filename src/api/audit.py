"""The audit log: authentications, denials and changes, one JSON object a line.

A denial is written at once. Equal ones that follow within a second are counted, and written as one
line with their number, so that a client cannot fill the disk by repeating a request.
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
DENIALS_MAX: Final = 1_000  # different ones that are counted at once; others are written at once
WINDOW_S: Final = 1.0


class AuditLog:
    """The audit log of one node."""

    def __init__(self, write: Callable[[str], None], wall_ms: Callable[[], int]) -> None:
        """`write` takes one line, without its end."""
        self._write = write
        self._wall_ms = wall_ms
        self._denials: dict[Action, int] = {}  # written once; how many have followed
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
        if action in self._denials:
            self._denials[action] += 1
            return
        self._denial(action, 1)
        if len(self._denials) >= DENIALS_MAX:
            return
        self._denials[action] = 0
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._count)

    def changed(self, client: ClientIdentity, *, change: object, outcome: str) -> None:
        """Record a change of the metadata that a client has asked for. `outcome` is "ok" or the
        name of an error."""
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
