"""The process of a backup command: its connection, its store, and its progress."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..backup.capture import Capture, CaptureOptions, CaptureReport
from ..backup.catalog import (
    BackupSummary,
    BackupVerification,
    Deletion,
    backups_to_delete,
    delete_backups,
    list_backups,
    load_backup,
    running_backups,
    verify,
)
from ..backup.manifest import BackupAccess, Manifest
from ..backup.objectstore import S3Options, open_store
from ..backup.plan import TopicNames, TopicRestore, compile_topics
from ..backup.restore import Restore, RestoreOptions, RestoreReport
from ..clients.config import ClientConfig, parse_bootstrap
from ..clients.connection import Connection
from ..errors import InvalidConfig, InvalidRequest, QuorumlogError
from ..runtime import Runtime
from ..runtime.memory import keep_freed_memory
from ..runtime.real import run
from ..runtime.sockets import is_loopback
from ..runtime.tls import secret_of
from . import settings
from .confirmation import confirmed, is_terminal
from .output import count_text, print_event, size_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The options of a store."""

    url: str
    endpoint: str
    region: str
    access_key: str  # file:PATH or env:NAME
    secret_key: str

    @property
    def options(self) -> S3Options:
        """The access to an S3-compatible service."""
        return S3Options(
            endpoint=self.endpoint,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCommand:
    """The options of `quorumlog backup restore`."""

    backup: str  # empty: the newest
    bootstrap: str | None
    topics: str
    single: str
    prefix: str
    renamed: Mapping[str, str]
    resumes: bool
    is_dry_run: bool
    replication: int | None
    configs: Mapping[str, str]
    has_groups: bool
    has_access: bool
    passphrase: str  # file:PATH or env:NAME; empty: none
    is_confirmed: bool  # users, ACLs and quotas that are not authenticated
    bytes_per_s: int
    progress_s: float  # 0: no progress lines
    is_json: bool


def run_create(
    place: StorePlace,
    *,
    bootstrap: str | None,
    topics: str,
    has_access: bool,
    passphrase: str,
    bytes_per_s: int,
    progress_s: float,
    is_json: bool,
) -> CaptureReport:
    """Make a backup; see `Capture`. Raises InvalidConfig for keys over an open network."""
    options = CaptureOptions(
        pattern=compile_topics(topics),
        has_access=has_access,
        passphrase=secret_of(passphrase) if passphrase else "",
        bytes_per_s=bytes_per_s,
    )
    found = settings.load(bootstrap=bootstrap)
    if passphrase:
        _check_privacy(found)

    async def main(runtime: Runtime) -> CaptureReport:
        store = open_store(runtime, place.url, place.options, creates=True)
        async with _connected(runtime, found) as connection:
            capture = Capture(runtime, connection, store, options, say=_sayer(is_json))
            return await _with_progress(
                runtime,
                capture.run(),
                lambda: capture_line(capture.report),
                progress_s,
                is_json,
            )

    return _run(main)


def run_restore(
    place: StorePlace, command: RestoreCommand
) -> tuple[RestoreReport, list[dict[str, object]]]:
    """Restore a backup; see `Restore`. Return the report, and a row for each topic of the plan.
    Raises InvalidConfig for keys over an open network, InvalidRequest if users, ACLs and quotas are
    neither authenticated nor confirmed."""
    options = RestoreOptions(
        pattern=compile_topics(command.topics),
        names=TopicNames(single=command.single, prefix=command.prefix, renamed=command.renamed),
        resumes=command.resumes,
        replication=command.replication,
        configs=command.configs,
        has_groups=command.has_groups,
        has_access=command.has_access,
        passphrase=secret_of(command.passphrase) if command.passphrase else "",
        bytes_per_s=command.bytes_per_s,
    )
    found = settings.load(bootstrap=command.bootstrap)
    if command.has_access and command.passphrase and not command.is_dry_run:
        _check_privacy(found)
    manifest = _load(place, command.backup)
    say = _sayer(command.is_json)
    for problem in manifest.problems:
        say(f"backup {manifest.backup}: {problem}")
    if command.has_access and manifest.access is not None:
        _confirm_access(manifest.backup, manifest.access, command, say)

    async def main(runtime: Runtime) -> tuple[RestoreReport, list[dict[str, object]]]:
        store = open_store(runtime, place.url, place.options)
        async with _connected(runtime, found) as connection:
            restore = Restore(runtime, connection, store, manifest, options, say=say)
            plans = await restore.plan()
            rows = [_plan_row(each) for each in plans]
            if command.is_dry_run:
                return restore.report, rows
            try:
                await _with_progress(
                    runtime,
                    restore.run(plans),
                    lambda: restore_line(restore.report),
                    command.progress_s,
                    command.is_json,
                )
            except (QuorumlogError, asyncio.CancelledError):
                say(f"interrupted: {restore_line(restore.report)} Continue with --resume.")
                raise
            return restore.report, rows

    return _run(main)


def _load(place: StorePlace, backup: str) -> Manifest:
    """Return the manifest of a backup; see `load_backup`."""

    async def main(runtime: Runtime) -> Manifest:
        return await load_backup(open_store(runtime, place.url, place.options), backup)

    return _run(main)


def _confirm_access(
    backup: str, access: BackupAccess, command: RestoreCommand, say: Callable[[str], None]
) -> None:
    """Print the users, ACLs and quotas of a dry run, and those that no passphrase authenticates.
    Raises InvalidRequest if the latter are not confirmed."""
    if command.passphrase and access.keys is None:
        return  # refused by the plan
    is_trusted = access.is_authenticated or command.is_confirmed
    if is_trusted and not command.is_dry_run:
        return
    for line in access_lines(access):
        say(f"backup {backup}: {line}")
    if is_trusted or command.is_dry_run:
        return
    counts = (
        f"{count_text(len(access.users), 'user')}, {count_text(len(access.acls), 'ACL')} and"
        f" {count_text(len(access.quotas), 'quota')}"
    )
    if not is_terminal():
        raise InvalidRequest(
            f"backup {backup}: its {counts} are not authenticated: a user who can write to the"
            " store can have changed them; nothing was restored; check them with --dry-run, then"
            " give --yes, or omit --access"
        )
    if not confirmed(f"Restore {counts}, which are not authenticated?"):
        raise InvalidRequest("nothing was restored: not confirmed")


def access_lines(access: BackupAccess) -> list[str]:
    """Return a line for each user, ACL and quota of a backup."""
    acls = [
        f"{each.permission} {each.principal} {each.operation} {each.resource_type}"
        f" {each.resource} ({each.pattern}) from {each.host}"
        for each in access.acls
    ]
    quotas = [f"quotas of {each.entity}: {each.quotas}" for each in access.quotas]
    return [*(f"user {each}" for each in access.users), *acls, *quotas]


def run_list(place: StorePlace) -> tuple[list[BackupSummary], list[str]]:
    """Return the backups of a store, and the ids of those that run or were interrupted."""

    async def main(runtime: Runtime) -> tuple[list[BackupSummary], list[str]]:
        store = open_store(runtime, place.url, place.options)
        return await list_backups(store), list(await running_backups(store))

    return _run(main)


def run_verify(
    place: StorePlace, backups: Sequence[str], *, bytes_per_s: int
) -> BackupVerification:
    """Verify backups; see `verify`."""

    async def main(runtime: Runtime) -> BackupVerification:
        store = open_store(runtime, place.url, place.options)
        return await verify(runtime, store, backups, bytes_per_s=bytes_per_s)

    return _run(main)


def run_delete_plan(place: StorePlace, backups: Sequence[str], keep: int) -> list[str]:
    """Return the ids of the backups to delete; see `backups_to_delete`."""

    async def main(runtime: Runtime) -> list[str]:
        store = open_store(runtime, place.url, place.options)
        return await backups_to_delete(store, backups, keep)

    return _run(main)


def run_delete(place: StorePlace, backups: Sequence[str], *, ignores_running: bool) -> Deletion:
    """Delete backups; see `delete_backups`."""

    async def main(runtime: Runtime) -> Deletion:
        store = open_store(runtime, place.url, place.options)
        return await delete_backups(store, backups, ignores_running=ignores_running)

    return _run(main)


def capture_line(report: CaptureReport) -> str:
    """Return the progress of a backup as one line."""
    return (
        f"{report.partitions_done} of {count_text(report.partitions, 'partition')};"
        f" {size_text(report.size_stored)} stored."
    )


def restore_line(report: RestoreReport) -> str:
    """Return the progress of a restore as one line."""
    line = (
        f"{report.topics_done} of {count_text(report.topics, 'topic')} restored,"
        f" {report.partitions_done} of {count_text(report.partitions, 'partition')} complete,"
        f" {size_text(report.size)} appended; {count_text(report.offsets, 'offset')} of"
        f" {count_text(report.groups, 'group')}"
    )
    if report.users or report.acls or report.quotas:
        line += (
            f"; {count_text(report.users, 'user')}, {count_text(report.acls, 'ACL')},"
            f" {count_text(report.quotas, 'quota')}"
        )
    return line + "."


def restore_json(report: RestoreReport) -> dict[str, Any]:
    """Return the result of a restore as a JSON object."""
    return {
        "backup": report.backup,
        "topics": report.topics,
        "topics_restored": report.topics_done,
        "partitions": report.partitions,
        "partitions_complete": report.partitions_done,
        "bytes": report.size,
        "groups": report.groups,
        "offsets": report.offsets,
        "users": report.users,
        "acls": report.acls,
        "quotas": report.quotas,
        "problems": report.problems,
    }


def _plan_row(plan: TopicRestore) -> dict[str, object]:
    ranges = [each for partition in plan.topic.partitions for each in partition.ranges]
    return {
        "topic": plan.topic.name,
        "restored_as": plan.name,
        "action": plan.action.value,
        "partitions": len(plan.topic.partitions),
        "replicas": plan.replication,
        "records": sum(each.records for each in ranges),
        "bytes": sum(each.size for each in ranges),
    }


def _check_privacy(found: settings.ClientSettings) -> None:
    """Raise InvalidConfig if salted keys would be sent over a network without encryption."""
    addresses = parse_bootstrap(found.bootstrap)
    is_local = all(is_loopback(each.rpartition(":")[0]) for each in addresses)
    if found.tls is None and not is_local:
        raise InvalidConfig(
            "salted keys need an encrypted connection; set security_protocol to SASL_SSL or SSL"
        )


@asynccontextmanager
async def _connected(runtime: Runtime, found: settings.ClientSettings) -> AsyncIterator[Connection]:
    config = ClientConfig(
        connect_timeout_ms=found.connect_timeout_ms,
        request_timeout_ms=found.request_timeout_ms,
        call_timeout_ms=found.call_timeout_ms,
        tls=found.tls,
        credentials=found.credentials,
    )
    connection = Connection(runtime, parse_bootstrap(found.bootstrap), config)
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


async def _with_progress(
    runtime: Runtime,
    work: Coroutine[Any, Any, T],
    line: Callable[[], str],
    interval_s: float,
    is_json: bool,
) -> T:
    """Run the work and print its progress."""
    say = _sayer(is_json)

    async def report() -> None:
        while interval_s:
            await asyncio.sleep(interval_s)
            say(line())

    async with runtime.tasks.scope("progress") as scope:
        scope.spawn(report(), name="lines")
        result = await work
        scope.cancel()
    return result


def _sayer(is_json: bool) -> Callable[[str], None]:
    """Return a function that prints a sentence: on stderr, or as an object on stdout."""

    return partial(print_event, is_json=is_json)


def _run(main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    keep_freed_memory()
    return run(main, name="backup")
