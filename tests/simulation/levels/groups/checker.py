"""The guarantees of groups, checked against the history of their members. Pure.

- `TwoOwners`: one member of a group at a time owns a partition.
- `CommittedAhead`, `PassedOver`: committed records were processed; no record is skipped.
- `FencedCommitTaken`, `LieTaken`: requests of non-members, or with a wrong epoch, are rejected.
- `TwinServed`: a member that joins with a static name of the classic protocol fences its
  predecessor.
- `StaleAssignment`: a sync returns the assignment of the leader of its own generation.
- `LostOffset`: committed offsets are found by every later fetch; they are linearizable.
- `Unworked`, `Uncommitted`: at the end every record was processed, and that is committed.
"""

from collections import defaultdict
from collections.abc import Mapping

from quorumlog.testing.checkers import Place, Stored

from ...checkers.linearizability import linearizability_anomalies
from ...checkers.models import Register
from ...checkers.violation import Violation
from .history import Claim, GroupHistory
from .plan import GroupPlan

STATES_MAX = 200_000


def check_found(group_history: GroupHistory) -> None:
    """Raise Violation for the first violation found during the run."""
    if group_history.found:
        name, _, detail = group_history.found[0].partition(": ")
        raise Violation(name, detail)


def check_owners(claims: list[Claim]) -> None:
    """Raise Violation if two members certainly owned a partition of a group at one time."""
    by_place: dict[tuple[str, Place], list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.began_ns < claim.until_ns:
            by_place[claim.group, claim.place].append(claim)
    for (group, _), found in by_place.items():
        found.sort(key=lambda claim: claim.began_ns)
        latest = found[0]
        for claim in found[1:]:
            if claim.began_ns < latest.until_ns and claim.process != latest.process:
                raise Violation("TwoOwners", f"of group {group}:\n  {latest}\n  {claim}")
            if claim.until_ns > latest.until_ns:
                latest = claim


def check_offsets(group_history: GroupHistory) -> None:
    """Raise Violation if commits and fetches of offsets are not linearizable."""
    found = linearizability_anomalies(
        group_history.registers.operations(), Register(), states_max=STATES_MAX
    )
    if found:
        raise Violation("LostOffset", "\n".join(found[:3]))


def unserved(
    group_history: GroupHistory,
    groups: tuple[GroupPlan, ...],
    ends: Mapping[Place, int],
    *,
    are_told: bool = True,
) -> list[str]:
    """Return the remaining work: partitions without one owner, unprocessed records, missing
    commits.

    `are_told`: commits are acknowledged, since no response is lost.
    """
    found = []
    owners: dict[tuple[str, Place], int] = defaultdict(int)
    for life in group_history.incarnations:
        for place in life.claims:
            owners[life.group, place] += 1
    for group in groups:
        for place, end in ends.items():
            if place[0] not in group.topics:
                continue
            key = (group.name, place)
            done_to = group_history.done_to(*key)
            if owners[key] != 1:
                found.append(f"{key} has {owners[key]} owners")
            elif done_to < end:
                found.append(f"{key} is processed up to {done_to} of {end}")
            elif are_told and group_history.stored[key] < end:
                found.append(f"{key} is committed up to {group_history.stored[key]} of {end}")
    return found


def check_work(group_history: GroupHistory, groups: tuple[GroupPlan, ...], stored: Stored) -> None:
    """Raise Violation if a record was processed by no member of a group."""
    for group in groups:
        for place, records in stored.items():
            if place[0] in group.topics and records:
                end, done_to = records[-1][0] + 1, group_history.done_to(group.name, place)
                if done_to < end:
                    raise Violation(
                        "Unworked",
                        f"group {group.name} has processed {place} up to {done_to}, "
                        f"which ends at {end}",
                    )
