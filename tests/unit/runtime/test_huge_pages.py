"""The heap of a process in huge pages."""

import subprocess
import sys
from pathlib import Path

import pytest

from quorumlog.runtime import memory
from quorumlog.runtime.memory import use_huge_pages

THP = Path("/sys/kernel/mm/transparent_hugepage")

FILL = """
from quorumlog.runtime.memory import use_huge_pages

def figures():
    lines = (line.split() for line in open("/proc/self/smaps_rollup"))
    found = {each[0]: int(each[1]) << 10 for each in lines if each[0].endswith(":")}
    return found["Rss:"], found["AnonHugePages:"]

full = [b"%d" % number * 9 for number in range(300_000)]
before = figures()
for _ in range(200):  # the kernel refuses a page that it is using
    made = use_huge_pages()
    if made:
        break
after = figures()
assert full == [b"%d" % number * 9 for number in range(300_000)]
print(made, after[0] - before[0], after[1] - before[1])
"""


@pytest.mark.skipif(not THP.exists(), reason="this kernel has no huge pages")
def test_memory_in_use_is_moved_and_unchanged() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FILL], check=True, capture_output=True, text=True
    )
    made, grown, huge = map(int, finished.stdout.split())
    assert made, "no huge page was made"
    assert huge >= made << 21
    assert grown <= made << 19, "a huge page was made of memory that was not in use"


def test_system_without_a_list_of_mappings_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MAPS", "/nowhere")
    assert use_huge_pages() == 0


def test_only_whole_huge_pages_of_anonymous_memory_are_moved() -> None:
    mappings = """\
00400000-00a00000 rw-p 00000000 00:00 0 [heap]
10100000-10700000 rw-p 00000000 00:00 0
20000000-20200000 r--p 00000000 00:00 0
30000000-30400000 rw-p 00000000 fe:00 71 /usr/lib/libc.so.6
40000000-40400000 rw-p 00000000 00:00 0 [stack]
50000000-501ff000 rw-p 00000000 00:00 0
"""
    found = list(memory._blocks(mappings.splitlines()))
    assert found == [0x400000, 0x600000, 0x800000, 0x10200000, 0x10400000]
