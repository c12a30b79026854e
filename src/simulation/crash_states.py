"""Disk states after a crash: for each operation of a recorded run, the disks to recover from.

A `Recording` copies the disk after every changing operation. `crash_states` derives from a copy the
states that a restart may find. After a process crash: every write. After a power cut: the durable
state, plus all, none, each combination of whole unsynced changes (if there are few), or random
draws that tear writes at sector boundaries and reorder them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from .disk import Disk
from .entropy import SimEntropy
from .files import Device

LINES_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class DiskOperation:
    """A changing operation, and a copy of the disk after it, unsynced changes included."""

    number: int  # of the device's counter
    what: str
    path: str
    detail: str
    disk: Disk

    def __str__(self) -> str:
        return f"{self.number}: {self.what} {self.path} {self.detail}"


@dataclass(slots=True)
class Recording:
    """The changing operations of a device since it was attached."""

    device: Device
    operations: list[DiskOperation] = field(default_factory=list)

    @classmethod
    def attach(cls, device: Device) -> "Recording":
        """Start recording a device; the first entry is its current disk."""
        recording = cls(device)
        recording.changed("begin", "", "")
        device.journal = recording
        return recording

    def changed(self, what: str, path: str, detail: str) -> None:
        """Record an operation."""
        disk = self.device.disk.clone()
        self.operations.append(DiskOperation(self.device.operations, what, path, detail, disk))

    def stop(self) -> None:
        """Stop recording."""
        self.device.journal = None

    def around(self, number: int) -> str:
        """Return the operations near an operation number, a line each."""
        near = [op for op in self.operations if abs(op.number - number) <= LINES_SHOWN]
        return "\n".join(f"{'>' if op.number == number else ' '} {op}" for op in near)


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk state that a crash may leave."""

    name: str  # its derivation: seed, operation and name reproduce the state
    disk: Disk
    is_power_cut: bool


class Choices:
    """Enumeration of all sequences of yes/no answers to the questions asked in a round."""

    def __init__(self) -> None:
        self._script: list[bool] = []
        self._at = 0

    def ask(self) -> bool:
        """Return the answer to the next question of this round."""
        if self._at == len(self._script):
            self._script.append(False)
        self._at += 1
        return self._script[self._at - 1]

    def next_round(self) -> bool:
        """Advance to the next sequence. Return False after the last one."""
        del self._script[self._at :]
        self._at = 0
        while self._script and self._script[-1]:
            self._script.pop()
        if self._script:
            self._script[-1] = True
        return bool(self._script)

    def __str__(self) -> str:
        return "".join("+" if kept else "-" for kept in self._script)


def crash_states(
    disk: Disk, entropy: SimEntropy, *, draws: int, choices_max: int
) -> Iterator[CrashState]:
    """Yield the distinct states that a crash now may leave: at most 3 + `choices_max` + `draws`."""
    yield CrashState("process", disk.clone(), is_power_cut=False)
    seen: set[bytes] = set()
    for wreck in _power_cuts(disk, entropy, draws=draws, choices_max=choices_max):
        content = content_digest(wreck.disk)
        if content not in seen:
            seen.add(content)
            yield wreck


def content_digest(disk: Disk) -> bytes:
    """Return a digest of every name and byte of a disk."""
    hashed = blake2b(digest_size=16)
    for path, body in disk.files():
        hashed.update(f"{path}\0{len(body.content)}\0".encode())
        hashed.update(body.content)
    return hashed.digest()


def _power_cuts(
    disk: Disk, entropy: SimEntropy, *, draws: int, choices_max: int
) -> Iterator[CrashState]:
    for name, keeps in (("kept", True), ("dropped", False)):
        copy = disk.clone()
        copy.settle(lambda keeps=keeps: keeps)  # type: ignore[misc]  # bound now, asked at once
        yield CrashState(name, copy, is_power_cut=True)
    choices = Choices()
    for _ in range(choices_max):
        copy = disk.clone()
        copy.settle(choices.ask)
        yield CrashState(f"choice {choices}", copy, is_power_cut=True)
        if not choices.next_round():
            break
    for number in range(draws):
        copy = disk.clone()
        copy.cut_power(entropy.stream(f"draw/{number}"))
        yield CrashState(f"draw {number}", copy, is_power_cut=True)
