"""Porcupine (github.com/anishathalye/porcupine) and the checker of this project have the same
verdict on each history of registers, and Porcupine confirms the order of operations in the
consensus core."""

import fcntl
import hashlib
import json
import random
import shutil
import subprocess
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.simulation.checkers.linearizability import (
    Operation,
    linearizability_anomalies,
)
from tests.simulation.checkers.models import DONE, Read, Register, Swap, Write
from tests.simulation.levels.core.clients import CoreHistory, PendingProposal, PendingRead
from tests.simulation.levels.core.run import CoreRun
from tests.simulation.levels.quorum.clients import Notes
from tests.simulation.levels.quorum.level import play
from tests.simulation.runs import play_seed

SOURCE: Final = Path(__file__).with_name("porcupine")
BUILD: Final = Path(__file__).parents[2] / "build" / "porcupine"
BUILD_S: Final = 200
JUDGE_S: Final = 300
STALE_AFTER: Final = 8  # appends before the planted stale read
CI_SEEDS: Final = {"core": 60, "quorum": 10}  # of `make test`

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def judge() -> Path:
    """Build the program, once for each version of its source, and return its path. Skip the test
    without Go or its modules."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on the PATH")
    pinned = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))
    program = BUILD / hashlib.sha256(pinned).hexdigest()[:16]
    BUILD.mkdir(parents=True, exist_ok=True)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process builds
        if not program.exists():
            command = [go, "build", "-o", str(program), "."]
            try:
                finished = subprocess.run(
                    command,
                    cwd=SOURCE,
                    capture_output=True,
                    text=True,
                    timeout=BUILD_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"go did not build the program within {BUILD_S} s")
            if finished.returncode != 0:
                pytest.skip(f"go cannot build the program: {finished.stderr[-600:]}")
    return program


def verdicts(
    judge: Path, lines: Iterable[dict[str, Any]], *, undecided_max: int = 0
) -> dict[str, bool]:
    """Return by key whether Porcupine finds the history linearizable, for the decided keys."""
    given = "".join(json.dumps(line) + "\n" for line in lines)
    finished = subprocess.run(
        [str(judge)], input=given, capture_output=True, text=True, timeout=JUDGE_S, check=True
    )
    found = {row["key"]: row["verdict"] for row in map(json.loads, finished.stdout.splitlines())}
    undecided = [key for key, verdict in found.items() if verdict == "Unknown"]
    assert len(undecided) <= undecided_max, f"Porcupine has no verdict on the keys {undecided}"
    return {key: verdict == "Ok" for key, verdict in found.items() if verdict != "Unknown"}


def register_lines(operations: Sequence[Operation]) -> Iterator[dict[str, Any]]:
    """Yield the operations of registers in the format of Porcupine's driver.

    Porcupine tries operations of unknown outcome at all positions. They are omitted if no other
    operation shows their effect. Values are unique for a key: a returned value was written before.
    """
    seen: dict[
        tuple[str, Hashable] | None, int
    ] = {}  # the first completion that returned the value
    for one in operations:
        if one.completed is not None and not isinstance(one.request, Write):
            value = one.key, one.result
            seen[value] = min(seen.get(value, one.completed), one.completed)
    wanted = {
        (one.key, one.request.expected) for one in operations if isinstance(one.request, Swap)
    }
    for one in operations:
        written = (one.key, one.request.value) if isinstance(one.request, Write | Swap) else None
        if one.completed is None and written not in seen and written not in wanted:
            continue
        line: dict[str, Any] = {"key": one.key, "invoked": one.invoked}
        match one.request:
            case Read():
                line["kind"] = "read"
            case Write(new):
                line |= {"kind": "write", "value": new.decode()}
            case Swap(expected, new):
                line |= {"kind": "swap", "value": new.decode(), "expected": text(expected)}
            case _:
                raise AssertionError(f"no request of a register: {one.request!r}")
        if one.completed is not None:
            line["complete"] = one.completed
            line["found"] = text(one.result) if line["kind"] != "write" else None
        elif (until := seen.get(written, 0)) > one.invoked:
            line["until"] = until
        yield line


def text(value: Hashable) -> str | None:
    assert value is None or isinstance(value, bytes), f"{value!r}"
    return None if value is None else value.decode()


def assert_equal_verdicts(judge: Path, operations: Sequence[Operation]) -> dict[str, bool]:
    """Compare both verdicts on each key, and return them."""
    by_key: dict[str, list[Operation]] = {}
    for one in operations:
        by_key.setdefault(one.key, []).append(one)
    ours = {key: not linearizability_anomalies(some, Register()) for key, some in by_key.items()}
    theirs = dict.fromkeys(by_key, True) | verdicts(judge, register_lines(operations))
    assert theirs == ours
    return ours


# --- planted anomalies ---------------------------------------------------------------------------

Line = tuple[Hashable, Hashable, int, int | None]  # request, result, invoked, completed
A, B, READ = Write(b"a"), Write(b"b"), Read()
PLANTED: Final[dict[str, tuple[Line, ...]]] = {
    "stale read": ((A, DONE, 1, 2), (B, DONE, 3, 4), (READ, b"b", 5, 6), (READ, b"a", 7, 8)),
    "lost write": ((A, DONE, 1, 2), (B, DONE, 3, 4), (READ, b"a", 5, 6)),
    "lost first write": ((A, DONE, 1, 2), (READ, None, 3, 4)),
    "future read": ((READ, b"a", 1, 2), (A, DONE, 3, 4)),
    "double apply": (
        (A, None, 1, None),
        (READ, b"a", 2, 3),
        (B, DONE, 4, 5),
        (READ, b"b", 6, 7),
        (READ, b"a", 8, 9),
    ),
    "two swaps of one value": (
        (A, DONE, 1, 2),
        (Swap(b"a", b"b"), b"a", 3, 5),
        (Swap(b"a", b"c"), b"a", 4, 6),
    ),
    "phantom": ((A, DONE, 1, 2), (READ, b"z", 3, 4)),
}
ALLOWED: Final[dict[str, tuple[Line, ...]]] = {
    "overlap": ((A, DONE, 1, 4), (B, DONE, 2, 3), (READ, b"a", 5, 6)),
    "unknown write, seen": ((A, None, 1, None), (READ, None, 2, 3), (READ, b"a", 4, 5)),
    "unknown write, not seen": ((A, None, 1, None), (READ, None, 2, 3)),
    "unknown swap, not seen": ((A, DONE, 1, 2), (Swap(b"a", b"b"), None, 3, None)),
}


def operations_of(key: str, lines: Iterable[Line], first: int = 0) -> list[Operation]:
    return [
        Operation(
            number=first + number,
            client=f"c{number}",
            key=key,
            request=request,
            result=result,
            invoked=invoked,
            completed=completed,
        )
        for number, (request, result, invoked, completed) in enumerate(lines)
    ]


def test_both_find_planted_anomalies_and_nothing_else(judge: Path) -> None:
    histories = PLANTED | ALLOWED
    operations = [one for key, lines in histories.items() for one in operations_of(key, lines)]
    found = assert_equal_verdicts(judge, operations)
    assert {key for key, is_linearizable in found.items() if not is_linearizable} == set(PLANTED)


def small_history(drawn: random.Random) -> list[Line]:
    """Return up to seven operations with any results; the values of writes are unique."""
    count = drawn.randint(1, 7)
    ends = drawn.sample(range(2 * count), 2 * count)
    values = [None, b"0", b"1", b"2"]
    lines: list[Line] = []
    for number in range(count):
        invoked, completed = sorted(ends[2 * number : 2 * number + 2])
        value = str(number).encode()
        request: Hashable = Read()
        result: Hashable = drawn.choice(values)
        if drawn.random() < 0.3:
            request, result = Write(value), DONE
        elif drawn.random() < 0.4:
            request = Swap(drawn.choice(values), value)
        is_known = drawn.random() < 0.75
        lines.append(
            (request, result if is_known else None, invoked, completed if is_known else None)
        )
    return lines


def test_both_agree_on_small_random_histories(judge: Path) -> None:
    drawn = random.Random(7)
    operations = [
        one for number in range(3_000) for one in operations_of(f"{number}", small_history(drawn))
    ]
    found = assert_equal_verdicts(judge, operations)
    assert 300 < sum(found.values()) < 2_700


# --- simulated runs ------------------------------------------------------------------------------


def compare_quorum(judge: Path, seed: int, bug: str = "") -> dict[str, bool]:
    """Play a seed of level `quorum`; return the verdicts by key."""
    notes = Notes()
    outcome = play_seed("quorum", seed, partial(play, bug=bug, notes=notes))
    assert bug or not outcome.failure, outcome.failure
    return assert_equal_verdicts(judge, notes.history.operations())


def test_both_agree_on_a_run_of_the_quorum(judge: Path) -> None:
    assert all(compare_quorum(judge, 0).values())


@pytest.mark.long
def test_both_agree_on_all_seeds_of_the_quorum(judge: Path) -> None:
    for seed in range(CI_SEEDS["quorum"]):
        assert all(compare_quorum(judge, seed).values()), f"seed {seed}"


def test_both_find_stale_reads_of_a_planted_bug(judge: Path) -> None:
    assert any(not all(compare_quorum(judge, seed, "stale-reads").values()) for seed in range(5))


class RecordedCoreHistory(CoreHistory):
    """A history of the consensus core that keeps its operations for Porcupine."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self._moment = 0
        self._invoked: dict[int, int] = {}

    def begin(self) -> int:
        number = super().begin()
        self._moment += 1
        self._invoked[number] = self._moment
        return number

    def proposal_answered(self, proposal: PendingProposal) -> None:
        super().proposal_answered(proposal)
        self._answered("append", proposal.number, proposal.end)

    def read_answered(self, read: PendingRead, place: int) -> None:
        super().read_answered(read, place)
        self._answered("position", read.number, place)

    def _answered(self, kind: str, number: int, offset: int) -> None:
        self._moment += 1
        line = {"kind": kind, "offset": offset, "invoked": self._invoked[number]}
        self.lines.append(line | {"key": "log", "complete": self._moment})


def core_lines(seed: int) -> list[dict[str, Any]]:
    """Play a seed of level `core`; return its answered operations."""
    run = CoreRun(seed)
    run.harness.history = recorded = RecordedCoreHistory()
    run.play()
    return recorded.lines


def compare_core(judge: Path, seeds: Iterable[int]) -> int:
    """Let Porcupine judge seeds of level `core`, and a stale read in each; return the number of
    operations in decided histories."""
    count = 0
    for seed in seeds:
        lines = core_lines(seed)
        found = verdicts(judge, lines, undecided_max=1)
        assert all(found.values()), f"seed {seed}"
        count += len(lines) if found else 0
        if stale := with_stale_read(lines):
            assert not any(verdicts(judge, stale).values()), f"seed {seed} with a stale read"
    return count


def with_stale_read(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the operations up to an early append, and a read after it that misses it. Porcupine
    needs too long to refute a long history of many concurrent operations."""
    appends = [number for number, line in enumerate(lines) if line["kind"] == "append"]
    if not appends:
        return []
    kept = lines[: appends[:STALE_AFTER][-1] + 1]
    end = kept[-1]["complete"]
    stale = {"key": "log", "kind": "position", "offset": kept[-1]["offset"] - 1}
    return [*kept, stale | {"invoked": end + 1, "complete": end + 2}]


def test_porcupine_confirms_runs_of_the_core(judge: Path) -> None:
    assert compare_core(judge, range(3)) > 100


@pytest.mark.long
def test_porcupine_confirms_all_seeds_of_the_core(judge: Path) -> None:
    assert compare_core(judge, range(CI_SEEDS["core"])) > 1_000
