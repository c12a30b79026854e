"""Decisions of a backup and of a restore: reused objects, names of topics, garbage. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ..clients.admin.descriptions import Topic
from ..clients.mirror.source import topic_id_text
from ..errors import BackupDamaged, InvalidConfig, InvalidRequest, TopicAlreadyExists
from ..ids import BACKUP_MARK
from .manifest import (
    NAME_MAX,
    TOPIC_PATTERN,
    BackupTopic,
    Manifest,
    StoredRange,
    parse_range_path,
    range_path,
)

MIRROR_SOURCE: Final = "mirror.source"
NOT_RESTORED: Final = frozenset({MIRROR_SOURCE, "retention.holds"})
"""Configs that concern other clusters and queries."""

DURING_RESTORE: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Configs of a topic until it is restored: nothing of it expires before."""

SPAN_MAX: Final = 2**31 - 1  # offsets of a batch without records
END_MAX: Final = 10_000 * SPAN_MAX  # of a partition: a restore may append that many of them
TOPICS_SHOWN: Final = 20

_TOPIC_NAME: Final = re.compile(TOPIC_PATTERN)


def compile_topics(pattern: str) -> re.Pattern[str]:
    """Return the pattern of whole topic names. Raises InvalidRequest."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(f"{pattern!r} is not a regular expression: {error}") from None


def is_included(name: str, pattern: re.Pattern[str]) -> bool:
    """Return True if a backup of this pattern includes the topic; never an internal one."""
    return not name.startswith("__") and pattern.fullmatch(name) is not None


# --- backup --------------------------------------------------------------------------------------


class ReusedRange(NamedTuple):
    """An object that a backup may reuse."""

    stored: StoredRange
    is_proven: bool  # the newest backup has it: the source had these batches


def reusable_ranges(
    proven: Iterable[StoredRange], listed: Collection[StoredRange], *, start: int, end: int
) -> list[ReusedRange]:
    """Return stored objects that cover [start, x) without holes, for the largest x <= end.

    `proven` are the partition's ranges in the newest backup of the cluster, `listed` the objects in
    the store. Beyond the proven ones, the object that reaches furthest follows; if two of them
    differ in content only, none does, since one is of records that the source has lost.
    """
    present = frozenset(listed)
    found: list[ReusedRange] = []
    at = start
    for each in proven:
        if each.end <= start:
            continue
        is_next = each.first == at if found else each.first <= start
        if not is_next or each.end > end or each not in present:
            break
        found.append(ReusedRange(each, True))
        at = each.end
    by_first: dict[int, list[StoredRange]] = {}
    for each in present:
        if at < each.end <= end:
            # An object may begin before the start of the log, and only the first one may.
            first = max(each.first, start) if not found else each.first
            by_first.setdefault(first, []).append(each)
    while at in by_first:
        candidates = by_first[at]
        furthest = max(each.end for each in candidates)
        last = [each for each in candidates if each.end == furthest]
        if len(last) != 1:
            break
        found.append(ReusedRange(last[0], False))
        at = furthest
    return found


def is_unreferenced(path: str, referenced: Collection[str]) -> bool:
    """Return True for a data object that no backup has. An object with another name is not a
    backup's."""
    return path not in referenced and parse_range_path(path) is not None


def referenced_paths(manifest: Manifest) -> frozenset[str]:
    """Return the paths of a backup's data objects."""
    return frozenset(
        range_path(topic.id, partition, each) for topic, partition, each in manifest.data_objects()
    )


# --- restore -------------------------------------------------------------------------------------


class RestoreAction(StrEnum):
    """The action of a restore for one topic."""

    CREATE = "create"
    CONTINUE = "continue"  # an earlier restore of the same backup was interrupted
    COMPARE = "compare"  # it exists as an ordinary topic; an earlier restore may have ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNames:
    """The names of restored topics: their own ones, unless one of the fields changes them."""

    single: str = ""  # the name of the only topic
    prefix: str = ""
    renamed: Mapping[str, str] | None = None

    def name_of(self, name: str) -> str:
        """Return the name of a restored topic."""
        if self.renamed is not None and name in self.renamed:
            return self.renamed[name]
        return self.single or self.prefix + name


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRestore:
    """The restore of one topic."""

    topic: BackupTopic
    name: str  # in the target
    action: RestoreAction
    mark: str  # the mirror.source until the topic is restored
    replication: int
    configs: Mapping[str, str]  # at the end of the restore
    is_min_isr_lowered: bool  # min.insync.replicas is omitted: it exceeds the replication

    @property
    def first_configs(self) -> Mapping[str, str]:
        """The configs with which the topic is created."""
        return {**self.configs, **DURING_RESTORE, MIRROR_SOURCE: self.mark}

    @property
    def last_changes(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """The configs to set, and those to delete, at the end of the restore. An interrupted
        restore may have created the topic with others."""
        dropped = [name for name in DURING_RESTORE if name not in self.configs]
        return self.configs, [*dropped, MIRROR_SOURCE]


def restore_mark(backup: str, topic: BackupTopic) -> str:
    """Return the mirror.source of a topic that is being restored."""
    return f"{BACKUP_MARK}{backup}/{topic_id_text(bytes.fromhex(topic.id))}"


def plan_restore(
    manifest: Manifest,
    existing: Mapping[str, Topic],
    *,
    pattern: re.Pattern[str],
    names: TopicNames,
    resumes: bool,
    replication: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> list[TopicRestore]:
    """Return the topics to restore, by name.

    `existing` are the target's topics. Raises TopicAlreadyExists with every topic that is in the
    way, InvalidRequest for names that are invalid or collide, BackupDamaged for offsets that no log
    can have.
    """
    chosen = [topic for topic in manifest.topics if pattern.fullmatch(topic.name)]
    if names.single and len(chosen) != 1:
        raise InvalidRequest(
            f"--as {names.single}: {len(chosen)} topics match; select one with --topics"
        )
    _check_names([(topic.name, names.name_of(topic.name)) for topic in chosen], names, manifest)
    plans = [
        _plan_topic(
            manifest,
            topic,
            names.name_of(topic.name),
            existing,
            replication=replication,
            configs=configs or {},
        )
        for topic in sorted(chosen, key=lambda each: each.name)
    ]
    _check_existing(plans, existing, manifest.backup, resumes=resumes)
    return plans


def _plan_topic(
    manifest: Manifest,
    topic: BackupTopic,
    name: str,
    existing: Mapping[str, Topic],
    *,
    replication: int | None,
    configs: Mapping[str, str],
) -> TopicRestore:
    for index, partition in enumerate(topic.partitions):
        if partition.end > END_MAX:
            raise BackupDamaged(
                f"{topic.name}-{index}: it ends at offset {partition.end}; a restored log can end"
                f" at {END_MAX} at most; restore the other topics, with --topics"
            )
    found, mark = existing.get(name), restore_mark(manifest.backup, topic)
    if found is None:
        action = RestoreAction.CREATE
    elif found.configs.get(MIRROR_SOURCE) == mark:
        action = RestoreAction.CONTINUE
    else:
        action = RestoreAction.COMPARE
    replicas = topic.replication if replication is None else replication
    wanted = {key: value for key, value in topic.configs.items() if key not in NOT_RESTORED}
    min_isr = wanted.get("min.insync.replicas", "")
    is_lowered = min_isr.isdecimal() and int(min_isr) > replicas
    if is_lowered:
        del wanted["min.insync.replicas"]
    refused = NOT_RESTORED & configs.keys()
    if refused:
        raise InvalidConfig(f"{', '.join(sorted(refused))}: a restore cannot set it")
    return TopicRestore(
        topic=topic,
        name=name,
        action=action,
        mark=mark,
        replication=replicas,
        configs={**wanted, **configs},
        is_min_isr_lowered=is_lowered,
    )


def _check_names(pairs: Sequence[tuple[str, str]], names: TopicNames, manifest: Manifest) -> None:
    known = {topic.name for topic in manifest.topics}
    for old in names.renamed or {}:
        if old not in known:
            raise InvalidRequest(f"--rename {old}: backup {manifest.backup} has no such topic")
    by_new: dict[str, str] = {}
    for old, new in pairs:
        if not _TOPIC_NAME.match(new) or len(new) > NAME_MAX:
            raise InvalidRequest(
                f"{new!r} is not a topic name; use up to {NAME_MAX} of a-z, A-Z, 0-9, '.', '_' and"
                " '-'"
            )
        if new in by_new:
            raise InvalidRequest(f"{by_new[new]} and {old} would both be restored as {new}")
        by_new[new] = old


def _check_existing(
    plans: Sequence[TopicRestore], existing: Mapping[str, Topic], backup: str, *, resumes: bool
) -> None:
    """Raise TopicAlreadyExists for the topics that a restore may not write."""
    reasons = []
    for plan in plans:
        reason = _obstacle(plan, existing.get(plan.name), backup, resumes=resumes)
        if reason:
            reasons.append(f"{plan.name} {reason}")
    if not reasons:
        return
    shown = "; ".join(reasons[:TOPICS_SHOWN])
    more = f"; and {len(reasons) - TOPICS_SHOWN} more" if len(reasons) > TOPICS_SHOWN else ""
    raise TopicAlreadyExists(
        f"nothing was restored: {shown}{more}; give --resume to continue an interrupted restore, or"
        " other names with --as, --prefix or --rename"
    )


def _obstacle(plan: TopicRestore, found: Topic | None, backup: str, *, resumes: bool) -> str:
    """Return the reason for which a topic is in the way, "" if it is not."""
    if found is None:
        return ""
    if not resumes:
        if plan.action is RestoreAction.CONTINUE:
            return f"is half restored from backup {backup}"
        return "exists"
    if plan.action is RestoreAction.COMPARE and MIRROR_SOURCE in found.configs:
        return f"mirrors {found.configs[MIRROR_SOURCE]}"
    here, there = len(found.partitions), len(plan.topic.partitions)
    is_short = here < there or (plan.action is RestoreAction.CONTINUE and here != there)
    if is_short:
        return f"has {here} partitions, in the backup {there}"
    return ""
