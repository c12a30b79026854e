"""What groups promise, looked for in what their members were told. Pure.

- `TwoOwners`: a partition is worked on by one member of a group at a time.
- `CommittedAhead`, `PassedOver`: what is committed was worked on; nothing is begun behind it.
- `FencedCommitTaken`, `LieTaken`: who is no member, or in no such epoch, is refused.
- `TwinServed`: who comes again under a static name of the classic protocol shuts out who had it.
- `StaleAssignment`: a sync gives what the leader of its very generation has said.
- `LostOffset`: what is committed is found by every later look; committed offsets are linearizable.
- `Unworked`, `Uncommitted`: in the end every record was worked on, and that is committed.
"""

from collections import defaultdict
from collections.abc import Mapping

from quorumlog.testing.checkers import Place, Stored

from ...checkers.linearizability import linearizability_anomalies
from ...checkers.models import Register
from ...checkers.violation import Violation
from .history import Chronicle, Claim
from .plan import GroupPlan

STATES_MAX = 200_000


def check_found(chronicle: Chronicle) -> None:
    """Raise Violation for what was seen to be wrong while it happened."""
    if chronicle.found:
        name, _, detail = chronicle.found[0].partition(": ")
        raise Violation(name, detail)


def check_owners(claims: list[Claim]) -> None:
    """Raise Violation where two members had a partition of a group at one time, for sure."""
    by_place: dict[tuple[str, Place], list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.began_ns < claim.until_ns:
            by_place[claim.group, claim.place].append(claim)
    for (group, _), found in by_place.items():
        found.sort(key=lambda claim: claim.began_ns)
        latest = found[0]
        for claim in found[1:]:
            if claim.began_ns < latest.until_ns and claim.who != latest.who:
                raise Violation("TwoOwners", f"of group {group}:\n  {latest}\n  {claim}")
            if claim.until_ns > latest.until_ns:
                latest = claim


def check_offsets(chronicle: Chronicle) -> None:
    """Raise Violation where no order of commits and looks explains what was said."""
    found = linearizability_anomalies(
        chronicle.registers.operations(), Register(), states_max=STATES_MAX
    )
    if found:
        raise Violation("LostOffset", "\n".join(found[:3]))


def unserved(
    chronicle: Chronicle,
    groups: tuple[GroupPlan, ...],
    ends: Mapping[Place, int],
    *,
    are_told: bool = True,
) -> list[str]:
    """What is left to do: partitions that nobody or two have, work and commits that are due.

    `are_told`: who commits is told so in the end, since nothing is lost on the way.
    """
    found = []
    owners: dict[tuple[str, Place], int] = defaultdict(int)
    for life in chronicle.lives:
        for place in life.claims:
            owners[life.group, place] += 1
    for group in groups:
        for place, end in ends.items():
            if place[0] not in group.topics:
                continue
            key = (group.name, place)
            done_to = chronicle.done_to(*key)
            if owners[key] != 1:
                found.append(f"{key} has {owners[key]} owners")
            elif done_to < end:
                found.append(f"{key} is worked on up to {done_to} of {end}")
            elif are_told and chronicle.stored[key] < end:
                found.append(f"{key} is committed up to {chronicle.stored[key]} of {end}")
    return found


def check_work(chronicle: Chronicle, groups: tuple[GroupPlan, ...], stored: Stored) -> None:
    """Raise Violation where a record was worked on by no member of a group."""
    for group in groups:
        for place, records in stored.items():
            if place[0] in group.topics and records:
                end, done_to = records[-1][0] + 1, chronicle.done_to(group.name, place)
                if done_to < end:
                    raise Violation(
                        "Unworked",
                        f"group {group.name} has worked up to {done_to} of {place}, "
                        f"which ends at {end}",
                    )
