"""The backups of a store: list, load, verify and delete them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ..errors import BackupDamaged, BackupIncomplete, BackupNotFound
from ..records.checksum import crc32c
from ..runtime import Runtime
from .bandwidth import Bandwidth
from .manifest import (
    DATA,
    MANIFEST_BYTES_MAX,
    MANIFESTS,
    OBJECT_BYTES_MAX,
    RUNNING,
    BackupTopic,
    Manifest,
    RunningBackup,
    StoredRange,
    backup_of_path,
    decode_manifest,
    decode_running,
    manifest_path,
    range_path,
    running_path,
)
from .objectstore import ObjectStore, StoredObject
from .plan import is_unreferenced, referenced_paths

MARK_BYTES_MAX: Final = 64 << 10
PARALLEL: Final = 4
DAMAGES_MAX: Final = 10_000  # that a verification returns
DELETED_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSummary:
    """One backup of a store."""

    backup: str
    cluster: str
    started_ms: int  # milliseconds since 1970 (UTC)
    ended_ms: int
    topics: int
    groups: int
    records: int
    size: int  # bytes of the records' batches
    problems: tuple[str, ...]  # what the backup lacks
    error: str = ""  # the reason for which its manifest cannot be read; the other fields are empty


@dataclass(slots=True, kw_only=True)
class BackupVerification:
    """The result of `verify`."""

    backups: int = 0
    objects: int = 0
    size: int = 0  # bytes that were read
    damages: list[str] = field(default_factory=list)  # the first DAMAGES_MAX
    damaged: int = 0

    def add(self, damage: str) -> None:
        """Record a damage."""
        self.damaged += 1
        if len(self.damages) < DAMAGES_MAX:
            self.damages.append(damage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The result of `delete_backups`."""

    backups: tuple[str, ...]
    objects: int  # data objects that no other backup has
    size: int  # their bytes


async def backup_ids(store: ObjectStore) -> list[str]:
    """Return the ids of all backups, the oldest first."""
    return await _ids_below(store, MANIFESTS)


async def running_backups(store: ObjectStore) -> dict[str, RunningBackup | None]:
    """Return the backups that run or were interrupted, by id; None: its mark is malformed."""
    found: dict[str, RunningBackup | None] = {}
    for backup in await _ids_below(store, RUNNING):
        try:
            content = await store.get(running_path(backup), size_max=MARK_BYTES_MAX)
        except BackupDamaged:
            found[backup] = None
            continue
        if content is not None:
            found[backup] = decode_running(content)
    return found


async def _ids_below(store: ObjectStore, prefix: str) -> list[str]:
    """Return the backup ids in the paths below a prefix, in ascending order."""
    paths: list[str] = []
    await store.visit_objects(prefix, lambda each: paths.append(each.path))
    return sorted(backup for backup in map(backup_of_path, paths) if backup is not None)


async def load_backup(store: ObjectStore, backup: str) -> Manifest:
    """Return the manifest of a backup, the newest one if `backup` is empty. Raises BackupNotFound,
    BackupDamaged."""
    if not backup:
        ids = await backup_ids(store)
        if not ids:
            raise BackupNotFound(f"{store.url}: the store has no backup; create one first")
        backup = ids[-1]
    path = manifest_path(backup)
    content = None
    if backup_of_path(path) == backup:  # no other text becomes part of a path
        content = await store.get(path, size_max=MANIFEST_BYTES_MAX)
    if content is None:
        raise BackupNotFound(f"{store.url}: the store has no backup {backup!r}; list its backups")
    return decode_manifest(content, backup)


async def newest_states(
    store: ObjectStore, cluster: str, topic_ids: Collection[str], say: Callable[[str], None]
) -> dict[str, BackupTopic]:
    """Return the state of each of these topics in the newest readable backup of the cluster that
    has the topic, by topic id. One manifest at a time is in memory."""
    found: dict[str, BackupTopic] = {}
    for backup in reversed(await backup_ids(store)):
        if len(found) == len(topic_ids):
            break
        try:
            manifest = await load_backup(store, backup)
        except (BackupDamaged, BackupNotFound) as error:
            say(f"{error}")
            continue
        if manifest.cluster == cluster:
            for topic in manifest.topics:
                if topic.id in topic_ids:
                    found.setdefault(topic.id, topic)
    return found


async def list_backups(store: ObjectStore) -> list[BackupSummary]:
    """Return every backup, the oldest first; one manifest at a time is in memory."""
    found = []
    for backup in await backup_ids(store):
        try:
            found.append(_summary(await load_backup(store, backup)))
        except BackupNotFound:
            continue  # deleted since
        except BackupDamaged as error:
            found.append(_unreadable(backup, str(error)))
    return found


def _unreadable(backup: str, error: str) -> BackupSummary:
    return BackupSummary(
        backup=backup,
        cluster="",
        started_ms=-1,
        ended_ms=-1,
        topics=0,
        groups=0,
        records=0,
        size=0,
        problems=(),
        error=error,
    )


async def verify(
    runtime: Runtime, store: ObjectStore, backups: Sequence[str] = (), *, bytes_per_s: int = 0
) -> BackupVerification:
    """Read every object of these backups, by default of all, and compare size and checksum. An
    object of several backups is read once. Raises BackupNotFound."""
    result = BackupVerification()
    bandwidth = Bandwidth(runtime.clock, bytes_per_s)
    seen: set[str] = set()
    for backup in backups or await backup_ids(store):
        try:
            manifest = await load_backup(store, backup)
        except BackupDamaged as error:
            result.add(str(error))
            continue
        result.backups += 1
        objects = {
            range_path(topic.id, partition, each): each
            for topic, partition, each in manifest.data_objects()
        }
        rest = iter([item for item in objects.items() if item[0] not in seen])
        seen.update(objects)
        async with runtime.tasks.scope("verify") as scope:
            for _ in range(PARALLEL):
                work = _verify_objects(store, backup, rest, bandwidth, result)
                scope.spawn(work, name="objects")
    return result


async def _verify_objects(
    store: ObjectStore,
    backup: str,
    rest: Iterator[tuple[str, StoredRange]],
    bandwidth: Bandwidth,
    result: BackupVerification,
) -> None:
    """Verify objects until there are no more; several tasks share `rest`."""
    for path, each in rest:
        await bandwidth.spend(each.size)
        damage = await damage_of(store, path, each)
        result.objects += 1
        result.size += each.size
        if damage:
            result.add(f"backup {backup}: {path}: {damage}")


async def damage_of(store: ObjectStore, path: str, each: StoredRange) -> str:
    """Return the damage of a data object, "" if there is none."""
    try:
        content = await store.get(path, size_max=OBJECT_BYTES_MAX)
    except BackupDamaged as error:
        return str(error)
    return content_damage(content, each)


def content_damage(content: bytes | None, each: StoredRange) -> str:
    """Return the damage of a data object's content, "" if there is none."""
    if content is None:
        return "missing"
    if len(content) != each.size:
        return f"{len(content)} bytes in place of {each.size}"
    crc = crc32c(content)
    if crc != each.crc:
        return f"CRC-32C is {crc:08x} in place of {each.crc:08x}"
    return ""


async def missing_objects(store: ObjectStore, topics: Iterable[BackupTopic]) -> list[str]:
    """Return the paths of topics' data objects that the store lacks, or has in another size. No
    object is read."""
    missing: list[str] = []
    for topic in topics:
        wanted = {
            range_path(topic.id, index, each): each.size
            for index, partition in enumerate(topic.partitions)
            for each in partition.ranges
        }
        if wanted:
            await store.visit_objects(f"{DATA}/{topic.id}", partial(_forget, wanted))
        missing.extend(wanted)
    return missing


def _forget(wanted: dict[str, int], found: StoredObject) -> None:
    """Remove an object that has its size."""
    if wanted.get(found.path) == found.size:
        del wanted[found.path]


async def check_objects(store: ObjectStore, backup: str, topics: Iterable[BackupTopic]) -> None:
    """Raise BackupDamaged if the store lacks a data object of a backup."""
    missing = await missing_objects(store, topics)
    if missing:
        raise BackupDamaged(
            f"backup {backup}: {len(missing)} of its objects are missing or have another"
            f" size, the first is {missing[0]}; find all with `quorumlog backup verify`"
        )


# --- deletion ------------------------------------------------------------------------------------


async def backups_to_delete(store: ObjectStore, backups: Sequence[str], keep: int) -> list[str]:
    """Return the ids of named backups, or all but the newest `keep`. Raises BackupNotFound."""
    ids = await backup_ids(store)
    for backup in backups:
        if backup not in ids:
            raise BackupNotFound(f"{store.url}: the store has no backup {backup!r}")
    return list(dict.fromkeys(backups)) if backups else ids[: max(0, len(ids) - keep)]


async def delete_backups(
    store: ObjectStore, backups: Sequence[str], *, ignores_running: bool = False
) -> Deletion:
    """Delete backups, then the data objects that no other backup has.

    A manifest goes first: a backup that is half deleted does not exist. Raises BackupIncomplete if
    a backup runs or was interrupted, unless `ignores_running`: its objects would be deleted, too.
    Raises BackupDamaged, and deletes no data, if the manifest of another backup cannot be read.
    """
    running = {} if ignores_running else await running_backups(store)
    _check_running(store, running)
    rest = [each for each in await backup_ids(store) if each not in backups]
    referenced: set[str] = set()
    for backup in rest:
        referenced |= referenced_paths(await load_backup(store, backup))
    await store.delete([manifest_path(backup) for backup in backups])
    garbage: list[StoredObject] = []

    def collect(each: StoredObject) -> None:
        if is_unreferenced(each.path, referenced):
            garbage.append(each)

    await store.visit_objects(DATA, collect)
    for at in range(0, len(garbage), DELETED_AT_ONCE):
        # A backup that began after the listing may reuse an object.
        if not ignores_running:
            _check_running(store, await running_backups(store))
        if await backup_ids(store) != rest:
            raise BackupIncomplete(
                f"{store.url}: another backup was made at the same time; run the command again"
            )
        await store.delete([each.path for each in garbage[at : at + DELETED_AT_ONCE]])
    if not ignores_running:
        _check_running(store, await running_backups(store))
    await store.delete_partial(DATA)
    await store.delete_partial(MANIFESTS)
    if ignores_running:
        await store.delete_partial(RUNNING)  # else a backup may begin
        await store.delete([running_path(each) for each in await running_backups(store)])
    return Deletion(
        backups=tuple(backups), objects=len(garbage), size=sum(each.size for each in garbage)
    )


def _check_running(store: ObjectStore, running: dict[str, RunningBackup | None]) -> None:
    if running:
        raise BackupIncomplete(
            f"{store.url}: backup {', '.join(running)} runs or was interrupted, and no data is"
            " deleted under it; let it end, run `quorumlog backup create` again, or give --force if"
            " no backup runs"
        )


def _summary(manifest: Manifest) -> BackupSummary:
    return BackupSummary(
        backup=manifest.backup,
        cluster=manifest.cluster,
        started_ms=manifest.started_ms,
        ended_ms=manifest.ended_ms,
        topics=len(manifest.topics),
        groups=len(manifest.groups),
        records=manifest.records,
        size=manifest.size,
        problems=tuple(manifest.problems),
    )
