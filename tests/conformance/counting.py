"""A pytest plugin that counts passed, failed and excluded tests by suite, with the reasons."""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

OWN: Final = "quorumlog"
"""The suite of tests without a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The results of foreign tests that one test of the suite runs."""

    passed: int
    failed: Sequence[str]  # the names
    reasons: Sequence[str]  # of each excluded test


TALLY: Final = pytest.StashKey[Tally]()
"""A test with a tally counts as its tests."""

REQUESTS: Final = pytest.StashKey[Counter[tuple[str, str]]]()
"""The requests of all suites; see `Cluster.requests`."""


@dataclass
class Suite:
    """The results of one client's tests."""

    version: str = ""  # of the client; empty: no test ran
    counts: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)  # of excluded tests
    failed: list[str] = field(default_factory=list)


class Counting:
    """`suites` selects the suites; empty: all of them."""

    def __init__(self, suites: list[str]) -> None:
        self.suites: dict[str, Suite] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self._chosen = suites

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect the other suites."""
        if self._chosen:
            left = [item for item in items if suite_of(item) not in self._chosen]
            items[:] = [item for item in items if suite_of(item) in self._chosen]
            config.hook.pytest_deselected(items=left)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Store the requests of the run."""
        self.requests = config.stash.get(REQUESTS, self.requests)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Count a test once: by its call, or by its failed or skipped setup."""
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
    """Return the suite of a test: its client's, or that of its mark."""
    marked = _marked(item, 0)
    if marked:
        return marked
    callspec = getattr(item, "callspec", None)
    client = callspec.params.get("client") if callspec is not None else None
    return OWN if client is None else str(client)


def _marked(item: pytest.Item, at: int) -> str:
    """Return an argument of the mark `suite`: the name, or the version of its subject."""
    mark = item.get_closest_marker("suite")
    return str(mark.args[at]) if mark is not None and len(mark.args) > at else ""
