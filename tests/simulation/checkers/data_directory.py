"""The check of a data directory at the end of a scenario."""

from quorumlog.raftlog.inspection import check
from quorumlog.simulation.world import SimNode


def check_directory(server: SimNode, path: str) -> int:
    """Kill a node and run `check` on its data directory; return the number of notes.

    Raises AssertionError with every problem. A killed process leaves no contradictions, at any
    moment of the kill: torn tails and unfinished work are notes.
    """
    if server.alive:
        server.crash()
    server.start_process()
    report = check(server.runtime().files, path)
    problems = [
        f"{finding.kind} {finding.file} at {finding.position}: {finding.what}"
        for finding in report.all_findings()
        if finding.severity == "problem"
    ]
    assert report.is_ok, f"the data directory is not whole: {problems}"
    assert not report.is_in_use, f"{path} is locked by a dead process"
    server.crash()
    return sum(1 for _ in report.all_findings())
