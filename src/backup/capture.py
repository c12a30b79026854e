"""A backup of a cluster: its state, and the records that the store lacks.

The order makes the backup consistent: topics and their configs, users and ACLs, then the committed
offsets of groups, then the end of each partition (its last stable offset), then the records below
these ends. The manifest is written last. A backup that is interrupted leaves data objects, which
the next one reuses.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from ..clients.admin.admin import AsyncAdmin
from ..clients.admin.descriptions import Topic
from ..clients.admin.groups import list_groups
from ..clients.connection import Connection
from ..clients.mirror.group_offsets import stored_offsets
from ..clients.offsets import look_up
from ..errors import (
    BackupIncomplete,
    GroupNotFound,
    SecurityDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..runtime import Runtime
from .bandwidth import Bandwidth
from .catalog import check_objects, newest_states, running_backups
from .manifest import (
    DATA,
    PROBLEMS_MAX,
    BackupAccess,
    BackupAcl,
    BackupGroup,
    BackupOffset,
    BackupPartition,
    BackupQuotas,
    BackupTopic,
    Manifest,
    RunningBackup,
    StoredRange,
    encode_manifest,
    manifest_path,
    parse_range_path,
    running_path,
)
from .objectstore import ObjectStore, StoredObject
from .partition_copy import PartitionCopy
from .plan import NOT_RESTORED, is_included
from .sealed_keys import seal_keys
from .source_partition import SourcePartition

PARALLEL: Final = 4  # partitions at once
LOOKUPS_MAX: Final = 16  # topics at once
COMPACT: Final = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """The options of a backup."""

    pattern: re.Pattern[str]  # of the whole names of topics
    has_access: bool = True  # with users, ACLs and quotas
    passphrase: str = ""  # encrypts the salted keys of users; empty: they are not in the backup
    bytes_per_s: int = 0  # of reads from the brokers; 0: no limit


@dataclass(slots=True, kw_only=True)
class CaptureReport:
    """The progress of a backup, and its result."""

    backup: str
    topics: int = 0
    partitions: int = 0
    partitions_done: int = 0
    groups: int = 0
    records: int = 0
    size: int = 0  # bytes of all records' batches
    objects_stored: int = 0
    size_stored: int = 0  # bytes that the store lacked
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _CapturedTopic:
    topic: Topic
    bounds: list[tuple[int, int]]  # start and end of each partition
    partitions: list[BackupPartition | None]
    problem: str = ""  # the reason for which the backup lacks the topic
    is_compacted: bool = False


class Capture:
    """Makes one backup of a cluster."""

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        store: ObjectStore,
        options: CaptureOptions,
        *,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` gets a sentence about each event."""
        self._runtime = runtime
        self._connection = connection
        self._admin = AsyncAdmin(connection)
        self._store = store
        self._options = options
        self._say = say
        self._bandwidth = Bandwidth(runtime.clock, options.bytes_per_s)
        self._cluster = ""
        started_ms = runtime.clock.wall_ms()
        time = datetime.fromtimestamp(started_ms / 1_000, UTC)
        token = runtime.entropy.stream("backup id").token(4).hex()
        self._started_ms = started_ms
        self.report = CaptureReport(backup=f"{time:%Y%m%dT%H%M%S}{started_ms % 1_000:03}Z-{token}")

    async def run(self) -> CaptureReport:
        """Make the backup; its manifest is stored when this returns. Topics that were deleted, or
        changed, during the backup are in the report's problems.

        Raises the errors of the cluster, StoreUnavailable, DiskFull, InvalidRequest if the cluster
        exceeds a limit of manifests, and BackupDamaged if an object was deleted from the store
        during the backup. Nothing that was stored before is lost.
        """
        report, backup = self.report, self.report.backup
        self._cluster = (await self._admin.describe_cluster()).cluster_id
        interrupted = await self._interrupted()
        mark = RunningBackup(self._cluster, self._started_ms)
        await self._store.put(running_path(backup), msgspec.json.encode(mark))
        captured = await self._topics()
        access = await self._access() if self._options.has_access else None
        groups = await self._groups([each.topic for each in captured])
        await self._find_bounds(captured)
        encode_manifest(self._planned_manifest(captured, groups, access))
        wanted = {each.topic.topic_id.hex() for each in captured}
        before = await newest_states(self._store, self._cluster, wanted, self._say)
        await self._copy(captured, before)
        await self._find_changes(captured)
        manifest = self._manifest(captured, groups, access)
        content = encode_manifest(manifest)
        await check_objects(self._store, backup, manifest.topics)
        await self._store.put(manifest_path(backup), content)
        await self._store.delete([running_path(each) for each in (backup, *interrupted)])
        report.topics, report.groups = len(manifest.topics), len(manifest.groups)
        report.records, report.size = manifest.records, manifest.size
        return report

    async def _interrupted(self) -> list[str]:
        """Return the interrupted backups of the cluster, which this one replaces."""
        found = await running_backups(self._store)
        return [
            backup
            for backup, mark in found.items()
            if mark is None or mark.cluster == self._cluster
        ]

    def _planned_manifest(
        self,
        captured: Sequence[_CapturedTopic],
        groups: Sequence[BackupGroup],
        access: BackupAccess | None,
    ) -> Manifest:
        """Return the manifest without the objects, which are not known before the copy."""
        planned = [
            replace(each, partitions=[BackupPartition(*bounds, []) for bounds in each.bounds])
            for each in captured
        ]
        return self._manifest(planned, groups, access)

    def _manifest(
        self,
        captured: Sequence[_CapturedTopic],
        groups: Sequence[BackupGroup],
        access: BackupAccess | None,
    ) -> Manifest:
        topics = [_entry(each) for each in captured if not each.problem]
        names = {each.name for each in topics}
        kept = [
            BackupGroup(each.name, [offset for offset in each.offsets if offset.topic in names])
            for each in groups
        ]
        return Manifest(
            format=1,
            backup=self.report.backup,
            cluster=self._cluster,
            started_ms=self._started_ms,
            ended_ms=max(self._started_ms, self._runtime.clock.wall_ms()),
            topics=topics,
            groups=[each for each in kept if each.offsets],
            access=access,
            problems=self.report.problems[:PROBLEMS_MAX],
        )

    def _problem(self, text: str) -> None:
        self.report.problems.append(text)
        self._say(text)

    # --- state -----------------------------------------------------------------------------------

    async def _topics(self) -> list[_CapturedTopic]:
        topics = [
            each
            for each in await self._admin.describe_topics()
            if is_included(each.name, self._options.pattern)
        ]
        self.report.topics = len(topics)
        self.report.partitions = sum(len(each.partitions) for each in topics)
        return [_CapturedTopic(each, [], [None] * len(each.partitions)) for each in topics]

    async def _access(self) -> BackupAccess:
        users = [each.name for each in await self._admin.describe_users()]
        try:
            acls = await self._admin.describe_acls()
        except SecurityDisabled:  # no broker decides by ACLs
            acls = []
        quotas = await self._admin.describe_quotas()
        access = BackupAccess(
            users=users,
            acls=[
                BackupAcl(
                    principal=each.principal,
                    operation=each.operation,
                    resource_type=each.resource_type,
                    resource=each.resource,
                    pattern=each.pattern,
                    permission=each.permission,
                    host=each.host,
                )
                for each in acls
            ],
            quotas=[BackupQuotas(dict(each.entity), dict(each.quotas)) for each in quotas],
        )
        passphrase, backup = self._options.passphrase, self.report.backup
        if not passphrase:
            return access
        found = await self._admin.describe_scram_keys()
        keys = await self._runtime.tasks.offload(
            "cpu", lambda: seal_keys(found, passphrase, backup=backup, access=access)
        )
        return msgspec.structs.replace(access, keys=keys)

    async def _groups(self, topics: Sequence[Topic]) -> list[BackupGroup]:
        """Return the committed offsets in these topics."""
        partitions = {each.name: (each.topic_id, len(each.partitions)) for each in topics}
        groups = []
        for listed in await list_groups(self._connection, (), ()):
            try:
                stored = await stored_offsets(self._connection, listed.name)
            except GroupNotFound:
                continue
            offsets = []
            for (topic, partition), each in sorted(stored.items()):
                topic_id, count = partitions.get(topic, (b"", 0))
                if partition < count and each.topic_id in (b"", topic_id):
                    offsets.append(BackupOffset(topic, partition, each.offset, each.note))
            groups.append(BackupGroup(listed.name, offsets))
        return groups

    async def _find_bounds(self, captured: Sequence[_CapturedTopic]) -> None:
        """Look up the start and the last stable offset of each partition."""
        room = asyncio.Semaphore(LOOKUPS_MAX)

        async def find(each: _CapturedTopic) -> None:
            async with room:
                name = each.topic.name
                places = [(name, partition.partition) for partition in each.topic.partitions]
                try:
                    policy = (await self._admin.describe_configs(name))["cleanup.policy"]
                    starts = await look_up(self._connection, dict.fromkeys(places, "earliest"))
                    ends = await look_up(
                        self._connection,
                        dict.fromkeys(places, "latest"),
                        isolation_level="read_committed",
                    )
                except (UnknownTopicId, UnknownTopicOrPartition):
                    self._drop(each, "it was deleted during the backup")
                    return
                each.is_compacted = COMPACT in policy.value
                each.bounds = [(min(starts[place], ends[place]), ends[place]) for place in places]

        async with self._runtime.tasks.scope("bounds") as scope:
            for each in captured:
                scope.spawn(find(each), name=each.topic.name)

    def _drop(self, each: _CapturedTopic, reason: str) -> None:
        if not each.problem:
            each.problem = reason
            self._problem(f"{each.topic.name} is not in the backup: {reason}")

    async def _find_changes(self, captured: Sequence[_CapturedTopic]) -> None:
        """Record the topics that changed since the start of the backup."""
        now = {each.name: each for each in await self._admin.describe_topics()}
        for each in captured:
            topic, name = each.topic, each.topic.name
            found = now.get(name)
            if found is None or found.topic_id != topic.topic_id:
                how = "deleted" if found is None else "deleted and created again"
                self._drop(each, f"it was {how} during the backup")
            elif each.problem:
                continue
            elif len(found.partitions) != len(topic.partitions):
                self._problem(
                    f"{name} has {len(found.partitions)} partitions now; the backup has the"
                    f" {len(topic.partitions)} of its start"
                )
            elif dict(found.configs) != dict(topic.configs):
                self._say(f"{name} has other configs now; the backup has those of its start")

    # --- records ---------------------------------------------------------------------------------

    async def _copy(
        self, captured: Sequence[_CapturedTopic], before: Mapping[str, BackupTopic]
    ) -> None:
        """Store the records of all topics, some partitions at a time. `before`: the states of
        earlier backups by topic id."""
        room = asyncio.Semaphore(PARALLEL)
        async with self._runtime.tasks.scope("partitions") as scope:
            for each in captured:
                if each.problem:
                    continue
                topic_id = each.topic.topic_id.hex()
                listed = await self._listed(topic_id)
                for index in range(len(each.partitions)):
                    await room.acquire()
                    work = self._copy_partition(
                        each, index, before.get(topic_id), listed.get(index, [])
                    )
                    task = scope.spawn(work, name=f"{each.topic.name}-{index}")
                    task.add_done_callback(lambda _: room.release())

    async def _listed(self, topic_id: str) -> dict[int, list[StoredRange]]:
        """Return the whole stored objects of a topic by partition."""
        found: dict[int, list[StoredRange]] = {}

        def add(each: StoredObject) -> None:
            parsed = parse_range_path(each.path)
            if parsed is not None and parsed[2].size == each.size:
                found.setdefault(parsed[1], []).append(parsed[2])

        await self._store.visit_objects(f"{DATA}/{topic_id}", add)
        return found

    async def _copy_partition(
        self,
        captured: _CapturedTopic,
        index: int,
        before: BackupTopic | None,
        listed: Sequence[StoredRange],
    ) -> None:
        if captured.problem:
            return
        topic, (start, end) = captured.topic, captured.bounds[index]
        reader = SourcePartition(
            self._connection, topic, index, cluster=self._cluster, bandwidth=self._bandwidth
        )
        is_known = before is not None and index < len(before.partitions)
        copy = PartitionCopy(
            self._runtime,
            self._store,
            reader,
            topic_id=topic.topic_id.hex(),
            index=index,
            start=start,
            end=end,
            is_compacted=captured.is_compacted or (before is not None and before.is_compacted),
            proven=before.partitions[index].ranges if before is not None and is_known else (),
            listed=listed,
            on_store=self._count,
        )
        try:
            captured.partitions[index] = await copy.run()
        except BackupIncomplete as error:
            self._drop(captured, error.message)
        self.report.partitions_done += 1

    def _count(self, size: int) -> None:
        self.report.objects_stored += 1
        self.report.size_stored += size


def _entry(captured: _CapturedTopic) -> BackupTopic:
    topic = captured.topic
    partitions = [each for each in captured.partitions if each is not None]
    assert len(partitions) == len(topic.partitions), f"{topic.name}: {captured.partitions}"
    return BackupTopic(
        name=topic.name,
        id=topic.topic_id.hex(),
        replication=max(len(each.replicas) for each in topic.partitions),
        is_compacted=captured.is_compacted,
        configs={name: text for name, text in topic.configs.items() if name not in NOT_RESTORED},
        partitions=partitions,
    )
