"""A plugin of pytest's that counts by suite: what passed, failed, and was excluded, and why."""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

OWN: Final = "quorumlog"
"""The suite of tests that are about no client in particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What came of tests that are somebody else's, and are run by one of ours."""

    passed: int
    failed: Sequence[str]  # which
    reasons: Sequence[str]  # of each that was excluded


TALLY: Final = pytest.StashKey[Tally]()
"""A test that has it counts as what it says, and not as one."""

REQUESTS: Final = pytest.StashKey[Counter[tuple[str, str]]]()
"""The requests of all suites, see `Cluster.requests`."""


@dataclass
class Suite:
    """What came of one client's tests."""

    version: str = ""  # of the client; empty: none of its tests ran
    counts: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)  # of what was excluded or is not here
    failed: list[str] = field(default_factory=list)


class Counting:
    """`suites` names those that run; empty: all of them."""

    def __init__(self, suites: list[str]) -> None:
        self.suites: dict[str, Suite] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self._chosen = suites

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave the others out."""
        if self._chosen:
            left = [item for item in items if suite_of(item) not in self._chosen]
            items[:] = [item for item in items if suite_of(item) in self._chosen]
            config.hook.pytest_deselected(items=left)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Keep the requests of the run."""
        self.requests = config.stash.get(REQUESTS, self.requests)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Count a test once: by its call, or by what kept it from that."""
        report = yield
        suite = self.suites.setdefault(suite_of(item), Suite())
        tally = item.stash.get(TALLY, None)
        if tally is not None and report.when == "call":
            suite.version = _marked(item, 1)
            suite.counts.update(passed=tally.passed, excluded=len(tally.reasons))
            suite.reasons += tally.reasons
            failed = tally.failed or ([item.nodeid] if report.failed else [])
            suite.counts.update(failed=len(failed))
            suite.failed += failed
        elif report.when == "call" and report.passed:
            suite.counts["passed"] += 1
            client = getattr(item, "funcargs", {}).get("client")
            suite.version = getattr(client, "version", "") or _marked(item, 1) or suite.version
        elif report.failed:
            suite.counts["failed"] += 1
            suite.failed.append(item.nodeid)
        elif report.skipped:
            assert isinstance(report.longrepr, tuple), report.longrepr
            suite.counts["excluded"] += 1
            suite.reasons.append(report.longrepr[2].removeprefix("Skipped: "))
        return report


def suite_of(item: pytest.Item) -> str:
    """The suite of a test: that of its client, or the one that it is marked with."""
    marked = _marked(item, 0)
    if marked:
        return marked
    callspec = getattr(item, "callspec", None)
    client = callspec.params.get("client") if callspec is not None else None
    return OWN if client is None else str(client)


def _marked(item: pytest.Item, at: int) -> str:
    """What the mark of a test says: the suite's name, the version of what it is about."""
    mark = item.get_closest_marker("suite")
    return str(mark.args[at]) if mark is not None and len(mark.args) > at else ""
