"""Run the conformance suites of Kafka clients; print the tests passed, failed and excluded of each.

    python -m tests.conformance [--suite NAME]... [--against kafka | --security SASL_SSL]
        [pytest's arguments]

A test is excluded if a client has no such feature; each reason is listed. If a client is not on
this machine, its suite is listed with the remedy. The exit code is 1 if a test failed.
"""

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from .clients.registry import fetch_kcat
from .cluster import ALL, USUAL
from .conftest import AGAINST, SECURITY
from .counting import Counting

HERE: Final = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--suite", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--against", choices=("quorumlog", "kafka"), default="quorumlog")
    parser.add_argument(
        "--security",
        choices=("PLAINTEXT", "SASL_SSL"),
        default="PLAINTEXT",
        help="the protocol of the listeners",
    )
    chosen, rest = parser.parse_known_args(arguments)
    if chosen.against == "kafka" and chosen.security != "PLAINTEXT":
        parser.error("--security: a real Kafka has a plain listener only")
    print(fetch_kcat())
    os.environ[AGAINST] = chosen.against
    os.environ[SECURITY] = chosen.security
    counting = Counting(suites=chosen.suite)
    code = int(pytest.main(["-q", "--tb=short", str(HERE), *rest], plugins=[counting]))
    print("\n".join(report(counting)))
    return code


def report(counting: Counting) -> list[str]:
    """Return the lines of the table and of the exclusions."""
    rows: list[tuple[str, ...]] = [("suite", "client", "passed", "failed", "excluded")]
    for name, suite in sorted(counting.suites.items()):
        counts = (str(suite.counts[what]) for what in ("passed", "failed", "excluded"))
        client = suite.version or ("?" if suite.counts["passed"] else "not here")
        rows.append((name, client, *counts))
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    lines = ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)]
    for name, suite in sorted(counting.suites.items()):
        for reason, count in sorted(Counter(suite.reasons).items()):
            lines.append(f"{name}: {count} x {reason}")
        lines += [f"{name}: FAILED {test}" for test in suite.failed]
    requests = counting.requests
    for api in sorted(api for api, kind in requests if kind == USUAL and requests[api, USUAL]):
        usual, total = requests[api, USUAL], requests[api, ALL]
        lines.append(f"{api}: {usual:,} of {total:,} requests took the short way of usual ones")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
