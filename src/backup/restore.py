"""The restore of a backup: topics at their offsets, committed offsets of groups, users and ACLs.

Until every topic is complete, a restored topic is a mirror topic of the backup: no producer writes
to it, and nothing of it expires. So an interrupted restore is visible, and another
one continues it. At the end the topics become ordinary ones, after the offsets of groups are set.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from ..clients.admin.admin import AsyncAdmin
from ..clients.admin.security import Acl, UserKeys
from ..clients.connection import Connection
from ..clients.groups import coordinator
from ..clients.groups.coordinator import CommittedOffset
from ..clients.mirror.group_offsets import (
    Committed,
    CopyEnd,
    offsets_to_commit,
    stored_offsets,
)
from ..clients.offsets import PartitionLike
from ..errors import (
    InvalidConfig,
    QuorumlogError,
    SecurityDisabled,
    TopicAlreadyExists,
)
from ..runtime import Runtime
from .bandwidth import Bandwidth
from .catalog import check_objects
from .manifest import OFFSET_MAX, BackupAccess, BackupGroup, Manifest
from .objectstore import ObjectStore
from .partition_restore import PartitionRestore, has_end_of
from .plan import RestoreAction, TopicNames, TopicRestore, plan_restore
from .sealed_keys import open_keys

PARALLEL: Final = 4  # partitions at once
ACLS_A_CALL: Final = 500
KEYS_A_CALL: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """The options of a restore."""

    pattern: re.Pattern[str]  # of the whole names of topics in the backup
    names: TopicNames = field(default_factory=TopicNames)
    resumes: bool = False  # continue the topics of an interrupted restore
    replication: int | None = None  # None: as in the backup
    configs: Mapping[str, str] = field(default_factory=dict)  # in place of the backup's
    has_groups: bool = True
    has_access: bool = False  # users, ACLs and quotas, too
    passphrase: str = ""  # of the users' salted keys; empty: they are not restored
    bytes_per_s: int = 0  # of appends; 0: no limit


@dataclass(slots=True, kw_only=True)
class RestoreReport:
    """The progress of a restore, and its result."""

    backup: str
    topics: int = 0
    topics_done: int = 0  # that producers can write to
    partitions: int = 0
    partitions_done: int = 0
    size: int = 0  # bytes of batches that were appended
    groups: int = 0
    offsets: int = 0
    users: int = 0
    acls: int = 0
    quotas: int = 0
    problems: list[str] = field(default_factory=list)


class Restore:
    """Restores one backup to a cluster."""

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        store: ObjectStore,
        manifest: Manifest,
        options: RestoreOptions,
        *,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` gets a sentence about each event."""
        self._runtime = runtime
        self._connection = connection
        self._admin = AsyncAdmin(connection)
        self._store = store
        self._manifest = manifest
        self._options = options
        self._say = say
        self._bandwidth = Bandwidth(runtime.clock, options.bytes_per_s)
        self._user_keys: Sequence[UserKeys] = ()
        self.report = RestoreReport(backup=manifest.backup)

    async def plan(self) -> list[TopicRestore]:
        """Return the restore of each topic, checked against the store and the target; nothing is
        changed.

        Raises the errors of `plan_restore`, BackupDamaged if the store lacks an object or the
        passphrase is a wrong one, InvalidConfig if it is missing.
        """
        options = self._options
        self._user_keys = await self._keys()
        existing = {topic.name: topic for topic in await self._admin.describe_topics()}
        plans = plan_restore(
            self._manifest,
            existing,
            pattern=options.pattern,
            names=options.names,
            resumes=options.resumes,
            replication=options.replication,
            configs=options.configs,
        )
        await check_objects(self._store, self._manifest.backup, [each.topic for each in plans])
        for each in plans:
            if each.action is RestoreAction.COMPARE:
                await self._compare(each)
            elif each.action is RestoreAction.CREATE:
                await self._validate(each)
        return plans

    async def run(self, plans: Sequence[TopicRestore]) -> RestoreReport:
        """Restore the topics that `plan` returned, and the state that the options select.

        Raises the errors of the target and the store; `report` has what was restored until then.
        The report's problems are what a complete restore lacks.
        """
        report = self.report
        open_plans = [each for each in plans if each.action is not RestoreAction.COMPARE]
        report.topics = len(plans)
        report.topics_done = len(plans) - len(open_plans)
        report.partitions = sum(len(each.topic.partitions) for each in open_plans)
        for each in open_plans:
            if each.action is RestoreAction.CREATE:
                await self._create(each)
            if each.is_min_isr_lowered:
                self._problem(
                    f"{each.name} has {each.replication} replicas, fewer than its"
                    " min.insync.replicas, which was not restored"
                )
        await self._copy(open_plans)
        if self._options.has_groups:
            await self._restore_groups(plans)
        if self._options.has_access and self._manifest.access is not None:
            await self._restore_access(self._manifest.access, self._user_keys)
        for each in open_plans:
            configs, dropped = each.last_changes
            await self._admin.alter_configs(each.name, configs, delete=dropped)
            report.topics_done += 1
            self._say(f"{each.name} is restored")
        return report

    def _problem(self, text: str) -> None:
        self.report.problems.append(text)
        self._say(text)

    # --- topics ----------------------------------------------------------------------------------

    async def _compare(self, plan: TopicRestore) -> None:
        """Raise TopicAlreadyExists unless an ordinary topic has the records of the backup."""
        for index, partition in enumerate(plan.topic.partitions):
            is_equal = await has_end_of(
                self._connection,
                self._store,
                (plan.name, index),
                topic_id=plan.topic.id,
                partition=partition,
            )
            if not is_equal:
                raise TopicAlreadyExists(
                    f"nothing was restored: {plan.name} exists, and partition {index} does not have"
                    f" the last record of backup {self._manifest.backup}; delete the topic, or"
                    " restore under another name with --as, --prefix or --rename"
                )

    async def _validate(self, plan: TopicRestore) -> None:
        await self._admin.create_topic(
            plan.name,
            partitions=len(plan.topic.partitions),
            replication=plan.replication,
            configs={**plan.first_configs},
            validate_only=True,
        )

    async def _create(self, plan: TopicRestore) -> None:
        await self._admin.create_topic(
            plan.name,
            partitions=len(plan.topic.partitions),
            replication=plan.replication,
            configs={**plan.first_configs},
        )

    async def _copy(self, plans: Sequence[TopicRestore]) -> None:
        """Append the records of all topics, some partitions at a time."""
        room = asyncio.Semaphore(PARALLEL)
        async with self._runtime.tasks.scope("partitions") as scope:
            for plan in plans:
                for index in range(len(plan.topic.partitions)):
                    await room.acquire()
                    task = scope.spawn(
                        self._copy_partition(plan, index), name=f"{plan.name}-{index}"
                    )
                    task.add_done_callback(lambda _: room.release())

    async def _copy_partition(self, plan: TopicRestore, index: int) -> None:
        copy = PartitionRestore(
            self._runtime,
            self._connection,
            self._store,
            (plan.name, index),
            plan.mark,
            topic_id=plan.topic.id,
            partition=plan.topic.partitions[index],
            bandwidth=self._bandwidth,
        )
        try:
            await copy.run()
        finally:
            self.report.size += copy.size
        self.report.partitions_done += 1

    # --- groups ----------------------------------------------------------------------------------

    async def _restore_groups(self, plans: Sequence[TopicRestore]) -> None:
        """Set the committed offsets in the restored topics; never back, and not of a group with
        members."""
        by_name = {each.topic.name: each for each in plans}
        ends = {
            (each.name, index): CopyEnd(partition.end, OFFSET_MAX)
            for each in plans
            for index, partition in enumerate(each.topic.partitions)
        }
        for group in self._manifest.groups:
            offsets = _offsets_of(group, by_name)
            if not offsets:
                continue
            try:
                count = await self._restore_group(group.name, offsets, ends)
            except QuorumlogError as error:
                self._problem(f"the offsets of group {group.name} are not restored: {error}")
            else:
                self.report.groups += 1
                self.report.offsets += count

    async def _restore_group(
        self, name: str, offsets: Committed, ends: Mapping[PartitionLike, CopyEnd]
    ) -> int:
        present = await stored_offsets(self._connection, name, offsets)
        news = offsets_to_commit(offsets, present, ends)
        deadline_ms = self._connection.deadline_ms()
        await coordinator.commit(self._connection, name, news, deadline_ms=deadline_ms)
        return len(news)

    # --- access ----------------------------------------------------------------------------------

    async def _keys(self) -> list[UserKeys]:
        """Return the salted keys of the backup's users. Raises InvalidConfig without a passphrase
        for keys, and for a passphrase without keys; BackupDamaged for a wrong one, and for changed
        users, ACLs or quotas."""
        access, options = self._manifest.access, self._options
        if not options.has_access:
            return []
        if access is None or access.keys is None:
            if options.passphrase:  # an attacker could have removed the keys, or all of it
                raise InvalidConfig(
                    f"backup {self._manifest.backup} has no encrypted passwords, with which its"
                    " users, ACLs and quotas could be authenticated; omit --passphrase to see and"
                    " confirm them"
                )
            if access is None:
                self._say(f"backup {self._manifest.backup} has no users, ACLs and quotas")
            return []
        if not options.passphrase:
            raise InvalidConfig(
                f"backup {self._manifest.backup} has encrypted passwords; give their --passphrase"
            )
        return await self._runtime.tasks.offload(
            "cpu", lambda: open_keys(access, options.passphrase, backup=self._manifest.backup)
        )

    async def _restore_access(self, access: BackupAccess, keys: Sequence[UserKeys]) -> None:
        present = {each.name for each in await self._admin.describe_users()}
        news = [each for each in keys if each.user not in present]
        for call in key_calls(news):
            await self._admin.set_scram_keys(call)
        self.report.users = len({each.user for each in news})
        for user in access.users:
            if user in present:
                self._say(f"user {user} exists; the password is not changed")
        lacking = sorted(set(access.users) - present - {each.user for each in keys})
        if lacking:
            self._problem(
                f"users without a password in the backup are not restored: {', '.join(lacking)}"
            )
        acls = [
            Acl(
                principal=each.principal,
                operation=each.operation,
                resource_type=each.resource_type,
                resource=each.resource,
                pattern=each.pattern,
                permission=each.permission,
                host=each.host,
            )
            for each in access.acls
        ]
        try:
            for at in range(0, len(acls), ACLS_A_CALL):
                await self._admin.create_acls(acls[at : at + ACLS_A_CALL])
                self.report.acls += len(acls[at : at + ACLS_A_CALL])
        except SecurityDisabled as error:
            self._problem(f"{len(acls)} ACLs are not restored: {error}")
        await self._restore_quotas(access)

    async def _restore_quotas(self, access: BackupAccess) -> None:
        present = [dict(each.entity) for each in await self._admin.describe_quotas()]
        for each in access.quotas:
            entity: dict[str, str | None] = {**each.entity}
            if entity in present:
                self._say(f"quotas of {entity} exist; they are not changed")
                continue
            await self._admin.alter_quotas(entity, each.quotas)
            self.report.quotas += 1


def _offsets_of(
    group: BackupGroup, plans: Mapping[str, TopicRestore]
) -> dict[PartitionLike, CommittedOffset]:
    """Return a group's committed offsets in restored topics, by the partition in the target."""
    return {
        (plans[each.topic].name, each.partition): CommittedOffset(each.offset, each.note)
        for each in group.offsets
        if each.topic in plans
    }


def key_calls(keys: Sequence[UserKeys]) -> list[list[UserKeys]]:
    """Return the keys in calls of about KEYS_A_CALL. All keys of a user are in one call: a repeated
    restore omits users that have one."""
    calls: list[list[UserKeys]] = []
    for _, of_user in groupby(sorted(keys, key=_user), _user):
        found = list(of_user)
        if not calls or len(calls[-1]) + len(found) > KEYS_A_CALL:
            calls.append([])
        calls[-1] += found
    return calls


def _user(keys: UserKeys) -> str:
    return keys.user
