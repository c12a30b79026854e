"""A profile of a quorumlog node under a load: samples by py-spy, summed by function.

A sample has the stack of the interpreter; time in the kernel, and waits for the disk, count for the
calling function. The sums are those of leaves (`self`), and of functions anywhere on a stack (`with
callees`).
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

RATE = 400  # samples per second
LINES = 25
END_S = 120.0
MISSING = "py-spy is not here: `pip install py-spy`"


def program() -> str | None:
    """Return the path of py-spy."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


@contextlib.contextmanager
def profiled(title: str, pids: Sequence[int], *, wanted: bool) -> Iterator[None]:
    """Print a profile of the first process over the block, if requested."""
    spy = program()
    if not wanted or spy is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="quorumlog-profile-") as folder:
        path = Path(folder) / "stacks"
        command = [spy, "record", "--pid", str(pids[0]), "--rate", str(RATE), "--format", "raw"]
        command += ["--output", str(path), "--duration", "unlimited"]
        sampler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            sampler.send_signal(signal.SIGINT)  # it writes its results
            sampler.wait(END_S)
        for line in table(title, path.read_text().splitlines()):
            print(line, flush=True)


def table(title: str, stacks: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a profile from py-spy's stacks: frames separated by `;`, a space, a
    count."""
    leaves: Counter[str] = Counter()
    anywhere: Counter[str] = Counter()
    for stack in stacks:
        frames, _, count = stack.rpartition(" ")
        names = [short(frame) for frame in frames.split(";")]
        leaves[names[-1]] += int(count)
        for name in set(names):
            anywhere[name] += int(count)
    total = max(1, leaves.total())
    yield f"{title}: {total} samples"
    yield "   self  with callees"
    for name, own in leaves.most_common(LINES):
        yield f"  {own / total:5.1%}  {anywhere[name] / total:12.1%}  {name}"


def short(frame: str) -> str:
    """Return a frame without its line, and with the end of its path only."""
    function, _, place = frame.partition(" (")
    file = place.rstrip(")").rpartition(":")[0] or place.rstrip(")")
    return f"{function} ({'/'.join(Path(file).parts[-3:])})"
