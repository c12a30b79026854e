"""Bugs planted into the compiled produce requests are found by the comparison with the plain
twin."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / ".pkg" / "quorumlog"
SOURCE = "_produce.pyx"

BUGS = {
    "next offset off by one": (
        "self.next_offset = last_offset + 1",
        "self.next_offset = last_offset",
    ),
    "sequence gap accepted": (
        "and known.next_sequence == <int32_t>",
        "and known.next_sequence <= <int32_t>",
    ),
    "older epoch accepted": ("known.epoch == <int16_t>", "known.epoch >= <int16_t>"),
    "index entry behind the batch": (
        "relative = <uint32_t> (self.position + self.size)",
        "relative = <uint32_t> (self.position + self.size + size)",
    ),
    "leader epoch not stamped": (
        "        ql_put32(batch + EPOCH_AT, <uint32_t> self.leader_epoch)\n",
        "",
    ),
    "one log twice in a request": ("if tail.request == self.count:", "if False:"),
    "frame read beyond its end": ("size > end - start - 4", "size > end - start"),
    "transactional batch accepted": (" or ql_get16(batch + ATTRIBUTES_AT) & TRANSACTIONAL", ""),
    "segment beyond its size": (
        "            and self.position + self.size + size <= self.position_max\n",
        "",
    ),
    "leader's batch after a gap": (
        "<int64_t> ql_get64(batch) != self.next_offset",
        "<int64_t> ql_get64(batch) < self.next_offset",
    ),
    "leader's batch of a newer epoch": (
        "<int32_t> ql_get32(batch + EPOCH_AT) != self.leader_epoch",
        "<int32_t> ql_get32(batch + EPOCH_AT) < self.leader_epoch",
    ),
    "leader's batch with a wrong checksum": ("if not is_right or ql_get16", "if ql_get16"),
    "leader's marker as data": ("(TRANSACTIONAL | CONTROL)", "TRANSACTIONAL"),
    "new segment by time ignored": (
        "if timestamp < 0 or timestamp > self.timestamp_max:",
        "if timestamp < 0:",
    ),
    "sequence does not wrap": (
        "known.next_sequence = (stored.last_sequence + 1) & SEQUENCE_MASK",
        "known.next_sequence = stored.last_sequence + 1",
    ),
    "open transaction ignored": ("entry is None or entry[3] >= 0 or", "entry is None or"),
    "producer of a batch not counted": ("            known.count += 1\n", ""),
    "compressed batch for a topic with another codec": (
        "if self.takes_compressed and ql_get16",
        "if ql_get16",
    ),
    "header of a compressed batch not checked": (
        "if not has_sound_header(batch, size, self.newest_ms):",
        "if False:",
    ),
    "records of a compressed batch not checked": (
        "        if is_right:\n            inflated_left",
        "        is_right = 1\n        if is_right:\n            inflated_left",
    ),
    "inflated bytes not counted": ("inflated_left[0] -= view.len", "pass"),
}


def overlay(folder: Path, source: str) -> None:
    """Create a package in `folder` that differs from the tested one in the compiled module."""
    native = folder / "quorumlog" / "native"
    native.mkdir(parents=True)
    for original in PACKAGE.iterdir():
        if original.name != "native":
            (folder / "quorumlog" / original.name).symlink_to(original)
    for original in (PACKAGE / "native").iterdir():
        if not original.name.startswith(("_produce.c", SOURCE)):
            (native / original.name).symlink_to(original)
    (native / SOURCE).write_text(source)
    cython = Path(sys.executable).with_name("cython")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    made = native / "_produce.c"
    subprocess.run([cython, "-3", native / SOURCE, "-o", made], cwd=folder, check=True)
    include = sysconfig.get_path("include")
    command = ["cc", "-shared", "-fPIC", "-O0", "-w", f"-I{include}", str(made)]
    subprocess.run([*command, "-o", str(native / f"_produce{suffix}")], check=True)


def played(folder: Path) -> int:
    """Return the exit code of the tests of both twins on the package in `folder`."""
    tests = ROOT / "tests" / "property" / "native" / "test_produce_twins.py"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(tests)]
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True).returncode


@pytest.mark.long
@pytest.mark.parametrize("bug", ["none", *BUGS])
def test_a_bug_in_the_compiled_twin_is_found(bug: str, tmp_path: Path) -> None:
    source = (PACKAGE / "native" / SOURCE).read_text()
    if bug == "none":
        overlay(tmp_path, source)
        assert played(tmp_path) == 0
        return
    before, after = BUGS[bug]
    assert source.count(before) == 1, f"{before!r} occurs {source.count(before)} times"
    overlay(tmp_path, source.replace(before, after))
    assert played(tmp_path) == 1
