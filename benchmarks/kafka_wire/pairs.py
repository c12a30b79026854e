"""Paired measurements: the order of turns, ratios of neighbours, void turns, and verdicts on goals.

Each round measures all systems once, and every other round in the opposite order: K O O K K O for
Kafka and quorumlog, so that a slow drift of the machine cancels out. With several rounds, a last
turn repeats quorumlog: its ratio to itself (A/A) shows the noise of the machine.
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
S = TypeVar("S")
K = TypeVar("K")
Turns: TypeAlias = dict[int, T]
"""Measurements of one system by round, and by AGAIN."""

AGAIN: Final = -1  # the repeated turn of quorumlog
MET_SHARE: Final = 0.8  # of the pairs must meet a goal: four of five
ATTEMPTS: Final = 3  # of a round with a void turn
MARGIN: Final = 1.5  # rates of a probe are uncertain
FULL_SHARE: Final = 0.97  # of the bytes of its peer
WRITTEN_SHARE: Final = 0.01  # of the measured bytes: journals and metadata, not data
WRITTEN_BYTES: Final = 4 << 20  # the same in a small turn
BOUND_THREAD: Final = 0.95  # of a core, used by the busiest thread of a client
BOUND_BROKER: Final = 0.8  # of a core


def turns(subjects: Sequence[S], rounds: int) -> Iterator[tuple[int, Sequence[S]]]:
    """Yield the subjects of each round in their order; the first is quorumlog, the second its
    peer."""
    for number in range(rounds):
        is_reversed = (rounds - number) % 2 == 1  # so that the last round ends with quorumlog
        yield number, subjects[::-1] if is_reversed else subjects
    if rounds > 1:
        yield AGAIN, subjects[:1]


def rounds_of(taken: Mapping[int, T]) -> list[T]:
    """Return the measurements of all rounds, without the repeated one."""
    return [each for number, each in taken.items() if number != AGAIN]


def median(taken: Mapping[int, T], figure: Callable[[T], float]) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(map(figure, rounds_of(taken)))


def size_of(rate: float, seconds: float) -> int:
    """Return the bytes of a turn at a probed rate: `seconds`, and half as long again."""
    return int(MARGIN * seconds * rate)


def void(*, seconds: float, least_s: float, moved: int, most: int, written: int) -> str:
    """Return the reason why a turn does not count; empty if it counts.

    It moved so many bytes, its peer `most`; the kernel wrote back `written` bytes.
    """
    if moved < FULL_SHARE * most:
        return f"it moved {moved / 1e6:,.0f} MB, its peer {most / 1e6:,.0f} MB"
    if seconds < least_s:
        return f"it lasted {seconds:.2f} s, less than {least_s:g} s"
    if written > max(WRITTEN_BYTES, WRITTEN_SHARE * moved):
        return f"the kernel wrote back {written / 1e6:,.0f} MB in {moved / 1e6:,.0f} MB"
    return ""


def counted(
    take: Callable[[], dict[K, T]], reasons: Callable[[dict[K, T]], dict[K, str]]
) -> tuple[dict[K, T], dict[K, str]]:
    """Repeat a void round up to ATTEMPTS; return the last one with the reasons of void turns."""
    for _ in range(ATTEMPTS):
        taken = take()
        void_turns = {key: reason for key, reason in reasons(taken).items() if reason}
        for key, reason in void_turns.items():
            print(f"void: {key}: {reason}", file=sys.stderr)
        if not void_turns:
            break
    return taken, void_turns


def is_client_bound(*, thread_cores: float, broker_cores: float) -> bool:
    """Return True if the client limits the rate, and not the broker."""
    return thread_cores > BOUND_THREAD and broker_cores < BOUND_BROKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal(Generic[T]):
    """A figure of both sides, and a bound for its ratio such as ">= 1.2"."""

    what: str
    figure: Callable[[T], float]
    bound: str

    def meets(self, ratio: float) -> bool:
        """Return True if a ratio meets the bound."""
        sign, bound = self.bound.split()
        return ratio >= float(bound) if sign == ">=" else ratio <= float(bound)


def compare(
    goal: Goal[T], mine: Mapping[int, T], theirs: Mapping[int, T], *, rounds: int, void: str = ""
) -> dict[str, Any] | None:
    """Return the ratios of all pairs and the verdict, None without a pair.

    The goal is met if the median ratio meets it, and four fifths of the pairs do. A missing pair
    does not meet it, nor does a void row; `void` is the reason.
    """
    ratios = [
        goal.figure(mine[number]) / goal.figure(theirs[number])
        for number in range(rounds)
        if number in mine and number in theirs
    ]
    if not ratios:
        return None
    ratio, met = statistics.median(ratios), sum(map(goal.meets, ratios))
    a_a = None
    if AGAIN in mine and rounds - 1 in mine:
        a_a = round(goal.figure(mine[AGAIN]) / goal.figure(mine[rounds - 1]), 3)
    return {
        "what": f"{goal.what}, of Kafka's",
        "ratio": round(ratio, 3),
        "goal": goal.bound,
        "met": goal.meets(ratio) and met >= math.ceil(MET_SHARE * rounds) and not void,
        "pairs": [round(each, 3) for each in ratios],
        "pairs_met": met,
        "rounds": rounds,
        "a_a": a_a,
        "note": f"void: {void}" if void else "",
    }


def compare_costs(
    rate: Goal[T],
    cpu: Goal[T],
    mine: Mapping[int, T],
    theirs: Mapping[int, T],
    *,
    rounds: int,
    client_bound: bool,
    void: str = "",
) -> Iterator[dict[str, Any]]:
    """Yield the rate and the CPU; in a client-bound row the CPU decides on both goals."""
    lines = [compare(each, mine, theirs, rounds=rounds, void=void) for each in (rate, cpu)]
    of_rate, of_cpu = lines
    if of_rate is None or of_cpu is None:
        return
    if client_bound:
        of_rate["met"] = of_cpu["met"]
        of_rate["note"] = of_rate["note"] or "client-bound: CPU decides"
    yield of_rate
    yield of_cpu


def say(compared: Sequence[Mapping[str, Any]]) -> None:
    """Print ratios with their goals."""
    for each in compared:
        verdict = "met" if each["met"] else "missed"
        a_a = "" if each["a_a"] is None else f", A/A {each['a_a']:.2f}"
        note = f", {each['note']}" if each["note"] else ""
        print(
            f"{each['what']}: {each['ratio']:.2f}, goal {each['goal']} {verdict}"
            f" ({each['pairs_met']} of {each['rounds']} pairs{a_a}{note})"
        )
