"""Internal errors of coordinators: they continue after one, and report it only in their log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .violation import Violation

COORDINATOR_LOGS: Final = ("quorumlog.groups", "quorumlog.transactions", "quorumlog.coordinator")


@contextmanager
def raise_internal_errors() -> Iterator[None]:
    """Raise Violation at the end of the block if a coordinator logged an internal error in it."""
    found: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "_broke" in record.msg:
                found.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")

    collect = Collect(logging.ERROR)
    logs = [logging.getLogger(name) for name in COORDINATOR_LOGS]
    for log in logs:
        log.addHandler(collect)
    try:
        yield
    finally:
        for log in logs:
            log.removeHandler(collect)
    if found:
        raise Violation("BrokenTerm", f"a coordinator failed and reloaded its state: {found[0]}")
