"""A simulated disk: its visible state, and the state that a power cut leaves.

Every file and folder has a visible state, a durable state, and the list of changes between them. A
sync applies that list to the durable state. A power cut decides each change separately: a write is
kept, dropped or torn at a 512-byte boundary, in any order; a name (created, renamed, removed) is
kept or dropped. A process crash has no effect here.

The rules are harsher than those of a journalling file system on purpose: code that survives them
survives any. This module is independent of processes, ports and time.
"""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from .entropy import SimEntropy

SECTOR: Final = 512
UNLIMITED_BYTES: Final = 1 << 40


def fail(number: int, path: str) -> OSError:
    """Return the kernel's error, with its errno and class (FileNotFoundError, ...)."""
    return OSError(number, os.strerror(number), path)


@dataclass(slots=True)
class DiskWrite:
    """Bytes written at a position, not yet durable."""

    position: int
    data: bytes


@dataclass(slots=True)
class DiskTruncation:
    """A truncation (or extension with zeros) to `size`, not yet durable."""

    size: int


def _apply(content: bytearray, change: DiskWrite | DiskTruncation) -> None:
    match change:
        case DiskWrite():
            end = change.position + len(change.data)
            if len(content) < change.position:
                content.extend(bytes(change.position - len(content)))
            content[change.position : end] = change.data
        case DiskTruncation():
            if change.size < len(content):
                del content[change.size :]
            else:
                content.extend(bytes(change.size - len(content)))


@dataclass(slots=True, eq=False)
class FileBody:
    """The content of a file, independent of its names."""

    content: bytearray = field(default_factory=bytearray)  # the visible content
    durable: bytearray = field(default_factory=bytearray)  # the content after any power cut
    unsynced: list[DiskWrite | DiskTruncation] = field(
        default_factory=list
    )  # from durable to content, in order

    def change(self, change: DiskWrite | DiskTruncation) -> None:
        """Make a change visible."""
        _apply(self.content, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        """Make the visible content durable."""
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def sync_failed(self) -> None:
        """Count the pages as clean after a failed sync: a power cut loses them."""
        self.unsynced.clear()

    def cut_power(self, entropy: SimEntropy) -> None:
        """Decide every unsynced change; the outcome is durable."""
        changes: list[object] = list(self.unsynced)
        entropy.shuffle(changes)
        for change in changes:
            match change:
                case DiskWrite():
                    self._decide_write(change, entropy)
                case DiskTruncation() if entropy.chance(0.5):
                    _apply(self.durable, change)
                case _:
                    pass  # the truncation did not reach the disk
        self.unsynced.clear()
        self.content[:] = self.durable

    def settle(self, keep: Callable[[], bool]) -> None:
        """Keep or drop every unsynced change, whole and in order."""
        for change in self.unsynced:
            if keep():
                _apply(self.durable, change)
        self.unsynced.clear()
        self.content[:] = self.durable

    def flip(self, position: int, bit: int) -> None:
        """Flip a bit of the visible and of the durable content."""
        for content in (self.content, self.durable):
            if position < len(content):
                content[position] ^= 1 << bit

    def clone(self) -> "FileBody":
        """Return an independent copy; the immutable unsynced changes are shared."""
        return FileBody(bytearray(self.content), bytearray(self.durable), list(self.unsynced))

    def _decide_write(self, write: DiskWrite, entropy: SimEntropy) -> None:
        """Keep, drop or tear one write."""
        fate = entropy.below(3)
        if fate == 0:
            return
        if fate == 1:
            _apply(self.durable, write)
            return
        first = write.position // SECTOR + 1
        last = (write.position + len(write.data) - 1) // SECTOR
        if last < first:  # inside one sector: all or nothing
            return
        boundary = (first + entropy.below(last - first + 1)) * SECTOR - write.position
        if entropy.chance(0.25):  # the later sectors were written first
            _apply(self.durable, DiskWrite(write.position + boundary, write.data[boundary:]))
            return
        _apply(self.durable, DiskWrite(write.position, write.data[:boundary]))
        missing = write.position + len(write.data) - len(self.durable)
        if missing > 0 and entropy.chance(0.5):  # the size was written before the bytes: zeros
            self.durable.extend(bytes(missing))


@dataclass(slots=True, eq=False)
class Folder:
    """The names in a folder."""

    entries: dict[str, "Entry"] = field(default_factory=dict)
    durable: dict[str, "Entry"] = field(default_factory=dict)
    unsynced: "list[NameChange]" = field(default_factory=list)


Entry = FileBody | Folder


@dataclass(slots=True, eq=False)
class NameChange:
    """An atomic change of names: removes a name, adds a name, or (a rename) both."""

    sequence: int
    removed: tuple[Folder, str] | None
    added: tuple[Folder, str, Entry] | None

    def places(self) -> list[tuple[Folder, str]]:
        """Return the affected names."""
        added = None if self.added is None else self.added[:2]
        return [place for place in (self.removed, added) if place is not None]

    def folders(self) -> list[Folder]:
        """Return the folders to sync to make the change durable."""
        touched = [place[0] for place in self.places()]
        return touched[:1] if len(touched) == 2 and touched[0] is touched[1] else touched

    def apply_durable(self) -> None:
        """Apply the change to the durable names."""
        if self.removed is not None:
            self.removed[0].durable.pop(self.removed[1], None)
        if self.added is not None:
            self.added[0].durable[self.added[1]] = self.added[2]


class Disk:
    """A tree of folders and files; "/" separates path components, absolute or relative to the
    root."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.root = Folder()
        self.capacity_bytes = capacity_bytes  # None: unlimited
        self._sequence = 0

    # --- lookup ---

    def find(self, path: str) -> Entry:
        """Return the file or folder of a path; FileNotFoundError, NotADirectoryError."""
        entry: Entry = self.root
        for part in _parts(path):
            if not isinstance(entry, Folder):
                raise fail(errno.ENOTDIR, path)
            if part not in entry.entries:
                raise fail(errno.ENOENT, path)
            entry = entry.entries[part]
        return entry

    def file(self, path: str) -> FileBody:
        """Return the file of a path; IsADirectoryError for a folder."""
        entry = self.find(path)
        if isinstance(entry, Folder):
            raise fail(errno.EISDIR, path)
        return entry

    def folder(self, path: str) -> Folder:
        """Return the folder of a path; NotADirectoryError for a file."""
        entry = self.find(path)
        if not isinstance(entry, Folder):
            raise fail(errno.ENOTDIR, path)
        return entry

    def exists(self, path: str) -> bool:
        """Return True if the path exists."""
        try:
            self.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def free_bytes(self) -> int:
        """Return the free bytes."""
        if self.capacity_bytes is None:
            return UNLIMITED_BYTES
        return max(0, self.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        """Return the bytes of all files that have a name."""
        return sum(len(body.content) for body in _bodies(self.root))

    # --- changes of names ---

    def create(self, path: str) -> FileBody:
        """Return the file of a path, created if absent."""
        folder, name = self._place(path)
        entry = folder.entries.get(name)
        if entry is None:
            entry = FileBody()
            self._change(removed=None, added=(folder, name, entry))
        if isinstance(entry, Folder):
            raise fail(errno.EISDIR, path)
        return entry

    def make_folder(self, path: str) -> None:
        """Create a folder and its missing parents."""
        here = self.root
        for part in _parts(path):
            entry = here.entries.get(part)
            if entry is None:
                entry = Folder()
                self._change(removed=None, added=(here, part, entry))
            if not isinstance(entry, Folder):
                raise fail(errno.EEXIST, path)
            here = entry

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        entry = self.find(path)
        if isinstance(entry, Folder) and entry.entries:
            raise fail(errno.ENOTEMPTY, path)
        self._change(removed=self._place(path), added=None)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces a file, or an empty folder by a folder."""
        entry = self.find(old)
        folder, name = self._place(new)
        there = folder.entries.get(name)
        if there is entry:
            return
        if isinstance(there, Folder) and not isinstance(entry, Folder):
            raise fail(errno.EISDIR, new)
        if isinstance(there, Folder) and there.entries:
            raise fail(errno.ENOTEMPTY, new)
        if isinstance(there, FileBody) and isinstance(entry, Folder):
            raise fail(errno.ENOTDIR, new)
        self._change(removed=self._place(old), added=(folder, name, entry))

    def sync_folder(self, path: str) -> None:
        """Make a folder's names durable."""
        folder = self.folder(path)
        while folder.unsynced:
            self._settle(folder.unsynced[0])

    def cut_power(self, entropy: SimEntropy) -> None:
        """Decide every unsynced name and write."""
        self._settle_names(lambda: entropy.chance(0.5))
        for body in _bodies(self.root):
            body.cut_power(entropy)

    def settle(self, keep: Callable[[], bool]) -> None:
        """Cut the power; `keep()` decides for each unsynced change whether it is kept or dropped
        whole."""
        self._settle_names(keep)
        for body in _bodies(self.root):
            body.settle(keep)

    def clone(self) -> "Disk":
        """Return an independent copy, unsynced changes included."""
        copy = Disk(capacity_bytes=self.capacity_bytes)
        copy._sequence = self._sequence
        copies: dict[int, Entry] = {id(self.root): copy.root}
        changes: dict[int, NameChange] = {}
        waiting = [(self.root, copy.root)]

        def copy_of(entry: Entry) -> Entry:
            if id(entry) not in copies:
                copies[id(entry)] = Folder() if isinstance(entry, Folder) else entry.clone()
                if isinstance(entry, Folder):
                    waiting.append((entry, _folder(copies[id(entry)])))
            return copies[id(entry)]

        def copy_change(change: NameChange) -> NameChange:
            if change.sequence not in changes:
                removed, added = change.removed, change.added
                changes[change.sequence] = NameChange(
                    change.sequence,
                    removed and (_folder(copy_of(removed[0])), removed[1]),
                    added and (_folder(copy_of(added[0])), added[1], copy_of(added[2])),
                )
            return changes[change.sequence]

        while waiting:
            folder, into = waiting.pop()
            into.entries = {name: copy_of(entry) for name, entry in folder.entries.items()}
            into.durable = {name: copy_of(entry) for name, entry in folder.durable.items()}
            into.unsynced = [copy_change(change) for change in folder.unsynced]
        return copy

    def files(self) -> Iterator[tuple[str, FileBody]]:
        """Yield (path, file) of every file that has a name, in order."""
        return _files(self.root, "")

    # --- inside ---

    def _settle_names(self, keep: Callable[[], bool]) -> None:
        undone: set[tuple[int, str]] = set()  # (id of the folder, name): membership only
        for change in sorted(self._unsynced(), key=lambda change: change.sequence):
            names = {(id(place[0]), place[1]) for place in change.places()}
            if keep() and names.isdisjoint(undone):
                change.apply_durable()
            else:  # later changes of the same names cannot have happened
                undone |= names
        _restore_names(self.root)

    def _place(self, path: str) -> tuple[Folder, str]:
        parts = _parts(path)
        if not parts:
            raise fail(errno.EBUSY, path)  # the root itself
        try:
            return self.folder("/".join(parts[:-1])), parts[-1]
        except OSError as error:
            raise fail(error.errno or errno.ENOENT, path) from None

    def _change(
        self, *, removed: tuple[Folder, str] | None, added: tuple[Folder, str, Entry] | None
    ) -> None:
        self._sequence += 1
        change = NameChange(self._sequence, removed, added)
        if removed is not None:
            del removed[0].entries[removed[1]]
        if added is not None:
            added[0].entries[added[1]] = added[2]
        for folder in change.folders():
            folder.unsynced.append(change)

    def _settle(self, change: NameChange) -> None:
        """Make a change durable after all earlier ones of its folders."""
        for folder in change.folders():
            while folder.unsynced[0] is not change:
                self._settle(folder.unsynced[0])
        change.apply_durable()
        for folder in change.folders():
            folder.unsynced.remove(change)

    def _unsynced(self) -> "list[NameChange]":
        """Return every change of names that is not durable, also below folders that are not durable
        or were removed."""
        found: dict[int, NameChange] = {}
        seen: set[int] = set()  # of id(): membership only, never iterated
        waiting: list[Folder] = [self.root]
        while waiting:
            folder = waiting.pop()
            if id(folder) in seen:
                continue
            seen.add(id(folder))
            changed = [change.added[2] for change in folder.unsynced if change.added is not None]
            below = (*folder.entries.values(), *folder.durable.values(), *changed)
            waiting += [entry for entry in below if isinstance(entry, Folder)]
            found.update((change.sequence, change) for change in folder.unsynced)
        return list(found.values())


@lru_cache(maxsize=4_096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _folder(entry: Entry) -> Folder:
    assert isinstance(entry, Folder), "a file where a folder was"
    return entry


def _bodies(folder: Folder) -> Iterator[FileBody]:
    """Yield the files below a folder, in the order of their names."""
    for _, body in _files(folder, ""):
        yield body


def _files(folder: Folder, path: str) -> Iterator[tuple[str, FileBody]]:
    """Yield the files below a folder with their paths, in the order of their names."""
    for name, entry in sorted(folder.entries.items()):
        if isinstance(entry, Folder):
            yield from _files(entry, f"{path}/{name}")
        else:
            yield f"{path}/{name}", entry


def _restore_names(folder: Folder) -> None:
    """Make the durable names the visible ones, recursively."""
    folder.entries = dict(folder.durable)
    folder.unsynced.clear()
    for entry in folder.entries.values():
        if isinstance(entry, Folder):
            _restore_names(entry)
