"""Where a node of ours spends its time under a load: samples by py-spy, summed by function.

A sample says where the interpreter stood; time in the kernel counts for the function that called
it, and so does a wait for the disk. Leaves alone are summed (`self`), and what stands anywhere on a
stack (`with callees`).
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

RATE = 400  # samples a second
LINES = 25
END_S = 120.0
MISSING = "py-spy is not here: `pip install py-spy`"


def program() -> str | None:
    """Where py-spy is."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


@contextlib.contextmanager
def profiled(title: str, pids: Sequence[int], *, wanted: bool) -> Iterator[None]:
    """Print a profile of the first process over the block, if that is wanted."""
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
            sampler.send_signal(signal.SIGINT)  # it writes what it has
            sampler.wait(END_S)
        for line in table(title, path.read_text().splitlines()):
            print(line, flush=True)


def table(title: str, stacks: Sequence[str]) -> Iterator[str]:
    """Lines of a profile from stacks as py-spy writes them: frames with `;`, a space, a count."""
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
    """A frame without the line, and with the end of its path only."""
    function, _, place = frame.partition(" (")
    file = place.rstrip(")").rpartition(":")[0] or place.rstrip(")")
    return f"{function} ({'/'.join(Path(file).parts[-3:])})"
