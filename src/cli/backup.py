"""`quorumlog backup create|list|verify|restore|delete`."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BackupDamaged, BackupIncomplete, InvalidRequest
from .confirmation import confirmed
from .options import BootstrapOption, Output, OutputOption
from .output import count_text, echo, print_json, print_table, size_text, time_text

if TYPE_CHECKING:
    from ..backup.catalog import BackupSummary
    from ..backup.restore import RestoreReport
    from .backup_runner import StorePlace

app = typer.Typer(
    help="Back up a cluster to a directory or an S3-compatible store, and restore it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""\b
Examples:
  quorumlog backup create --to /backups/prod
  quorumlog backup create --to s3://bucket/prod --topics 'orders.*' --bandwidth 50MiB
  quorumlog backup list --from /backups/prod
  quorumlog backup verify --from /backups/prod
  quorumlog backup restore --from /backups/prod -b new:9094
  quorumlog backup restore --from /backups/prod --topics orders --as orders-old
  quorumlog backup delete --from /backups/prod --keep 7
""",
)

STORE_HELP = "Store of the backups: a path, or s3://BUCKET/PREFIX"
ToOption = Annotated[str, typer.Option("--to", metavar="URL", help=STORE_HELP)]
FromOption = Annotated[str, typer.Option("--from", metavar="URL", help=STORE_HELP)]
EndpointOption = Annotated[
    str,
    typer.Option(
        "--endpoint",
        metavar="URL",
        help="URL of the S3-compatible service  [env var: AWS_ENDPOINT_URL]",
    ),
]
RegionOption = Annotated[
    str,
    typer.Option("--region", metavar="NAME", help="Region of the bucket  [env var: AWS_REGION]"),
]
AccessKeyOption = Annotated[
    str,
    typer.Option(
        "--access-key",
        metavar="REF",
        help="Access key of the store, file:PATH or env:NAME  [env var: AWS_ACCESS_KEY_ID]",
    ),
]
SecretKeyOption = Annotated[
    str,
    typer.Option(
        "--secret-key",
        metavar="REF",
        help="Secret key of the store, file:PATH or env:NAME  [env var: AWS_SECRET_ACCESS_KEY]",
    ),
]
TopicsOption = Annotated[
    str,
    typer.Option(
        "--topics",
        metavar="REGEX",
        help="Limit to topics with a matching whole name  [default: all]",
        show_default=False,
    ),
]
PassphraseOption = Annotated[
    str,
    typer.Option(
        "--passphrase",
        metavar="REF",
        help="Passphrase of the users' salted keys, file:PATH or env:NAME",
    ),
]
BandwidthOption = Annotated[
    str,
    typer.Option(
        "--bandwidth",
        metavar="SIZE",
        help="Transfer at most this size a second, such as 50MiB  [default: no limit]",
        show_default=False,
    ),
]
ProgressOption = Annotated[
    float,
    typer.Option(
        "--progress", metavar="SECONDS", min=0, help="Interval between progress lines; 0 for none"
    ),
]
BackupArgument = Annotated[
    str, typer.Argument(metavar="[BACKUP]", help="Id of the backup  [default: the newest]")
]


AsOption = Annotated[
    str, typer.Option("--as", metavar="NAME", help="Name of the only restored topic")
]
PrefixOption = Annotated[
    str, typer.Option("--prefix", metavar="TEXT", help="Prefix of the restored topics' names")
]
RenameOption = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="OLD=NEW", help="Rename a topic; repeatable"),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Continue an interrupted restore of this backup"),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check and print the plan, change nothing")
]
ReplicationOption = Annotated[
    int | None,
    typer.Option(
        "--replication", metavar="NUMBER", min=1, help="Replicas  [default: as in the backup]"
    ),
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="Config of the restored topics in place of the backup's; repeatable",
    ),
]
GroupsOption = Annotated[
    bool, typer.Option("--groups/--no-groups", help="Restore committed offsets of groups")
]
AccessOption = Annotated[
    bool,
    typer.Option("--access", help="Restore users, ACLs and quotas that do not exist, too"),
]
ConfirmedOption = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Restore users, ACLs and quotas that are not authenticated, without a prompt",
    ),
]


@app.command(short_help="Make a backup")
def create(
    to: ToOption,
    topics: TopicsOption = ".*",
    access: Annotated[
        bool, typer.Option("--access/--no-access", help="Include users, ACLs and quotas")
    ] = True,
    include_secrets: Annotated[
        bool,
        typer.Option(
            "--include-secrets",
            help="Include the salted keys of passwords, encrypted with the --passphrase",
        ),
    ] = False,
    passphrase: PassphraseOption = "",
    bandwidth: BandwidthOption = "",
    progress: ProgressOption = 10.0,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    access_key: AccessKeyOption = "",
    secret_key: SecretKeyOption = "",
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Back up topics with their records and configs, committed offsets of groups, users, ACLs and
    quotas.

    Only records that the store lacks are stored. After an interruption, run it again: it continues
    from the stored objects. A backup exists once its manifest is stored, at the end.
    """
    from .backup_runner import run_create

    if include_secrets != bool(passphrase):
        raise typer.BadParameter("--include-secrets and --passphrase are given together")
    if include_secrets and not access:
        raise typer.BadParameter("--include-secrets needs --access")
    report = run_create(
        _place(to, endpoint, region, access_key, secret_key),
        bootstrap=bootstrap,
        topics=topics,
        has_access=access,
        passphrase=passphrase,
        bytes_per_s=_rate(bandwidth),
        progress_s=progress,
        is_json=output is Output.JSON,
    )
    if output is Output.JSON:
        print_json(
            {
                "backup": report.backup,
                "topics": report.topics,
                "groups": report.groups,
                "records": report.records,
                "bytes": report.size,
                "objects_stored": report.objects_stored,
                "bytes_stored": report.size_stored,
                "problems": report.problems,
            }
        )
    else:
        echo(
            f"Backup {report.backup}: {count_text(report.topics, 'topic')},"
            f" {count_text(report.records, 'record')}, {size_text(report.size)},"
            f" {size_text(report.size_stored)} of them new; {count_text(report.groups, 'group')}."
        )
    if report.problems:
        raise BackupIncomplete(
            f"backup {report.backup} was made, with {count_text(len(report.problems), 'problem')}:"
            f" {report.problems[0]}"
        )


@app.command("list", short_help="List backups")
def list_backups(
    store: FromOption,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    access_key: AccessKeyOption = "",
    secret_key: SecretKeyOption = "",
    output: OutputOption = None,
) -> None:
    """List the backups of a store with time, topics, records and size, the oldest first, and those
    that run or were interrupted."""
    from .backup_runner import run_list

    found, running = run_list(_place(store, endpoint, region, access_key, secret_key))
    if output is Output.JSON:
        rows = [_summary_json(each) for each in found]
        print_json([*rows, *({"backup": each, "running": True} for each in running)])
        return
    print_table(
        ("backup", "time", "cluster", "topics", "groups", "records", "size", "note"),
        [
            (
                each.backup,
                None if each.error else time_text(each.started_ms),
                each.cluster or None,
                each.topics,
                each.groups,
                each.records,
                size_text(each.size),
                each.error or "; ".join(each.problems) or None,
            )
            for each in found
        ],
        empty="No backups.",
    )
    for backup in running:
        echo(f"Backup {backup} runs or was interrupted.")


@app.command(short_help="Read every object of backups, and report damage")
def verify(
    store: FromOption,
    backups: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BACKUP...]", help="Ids of backups  [default: all]"),
    ] = None,
    bandwidth: BandwidthOption = "",
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    access_key: AccessKeyOption = "",
    secret_key: SecretKeyOption = "",
    output: OutputOption = None,
) -> None:
    """Read every object of backups and compare size and checksum. Exit code 1 if one is missing or
    damaged."""
    from .backup_runner import run_verify

    result = run_verify(
        _place(store, endpoint, region, access_key, secret_key),
        backups or [],
        bytes_per_s=_rate(bandwidth),
    )
    if output is Output.JSON:
        print_json(
            {
                "backups": result.backups,
                "objects": result.objects,
                "bytes": result.size,
                "damaged": result.damaged,
                "damages": result.damages,
            }
        )
    else:
        for damage in result.damages:
            echo(damage)
        echo(
            f"{count_text(result.backups, 'backup')}, {count_text(result.objects, 'object')},"
            f" {size_text(result.size)}: {result.damaged or 'nothing'} damaged."
        )
    if result.damaged:
        raise BackupDamaged(
            f"{count_text(result.damaged, 'object')} missing or damaged, the first:"
            f" {result.damages[0]}"
        )


@app.command(
    short_help="Restore a backup",
    epilog="""\b
Examples:
  quorumlog backup restore --from /backups/prod -b new:9094 --dry-run
  quorumlog backup restore --from /backups/prod -b new:9094 --access
  quorumlog backup restore --from /backups/prod -b new:9094 --resume   # after an interruption
  quorumlog backup restore --from /backups/prod --topics orders --as orders-old --no-groups
""",
)
def restore(
    store: FromOption,
    backup: BackupArgument = "",
    topics: TopicsOption = ".*",
    as_name: AsOption = "",
    prefix: PrefixOption = "",
    rename: RenameOption = None,
    resume: ResumeOption = False,
    dry_run: DryRunOption = False,
    replication: ReplicationOption = None,
    config: ConfigOption = None,
    groups: GroupsOption = True,
    access: AccessOption = False,
    passphrase: PassphraseOption = "",
    yes: ConfirmedOption = False,
    bandwidth: BandwidthOption = "",
    progress: ProgressOption = 10.0,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    access_key: AccessKeyOption = "",
    secret_key: SecretKeyOption = "",
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Restore topics of a backup at their offsets, and the committed offsets of groups.

    Refuses to write to topics that exist. Producers can write to a restored topic once all topics
    are complete; until then an interrupted restore can be continued with --resume. With --access
    and a backup without encrypted passwords, prints its users, ACLs and quotas, and asks for
    confirmation on a terminal.
    """
    from .backup_runner import RestoreCommand, run_restore

    if passphrase and not access:
        raise typer.BadParameter("--passphrase needs --access")
    if as_name and prefix:
        raise typer.BadParameter("give --as or --prefix, not both")
    report, plans = run_restore(
        _place(store, endpoint, region, access_key, secret_key),
        RestoreCommand(
            backup=backup,
            bootstrap=bootstrap,
            topics=topics,
            single=as_name,
            prefix=prefix,
            renamed=_pairs("--rename", rename or []),
            resumes=resume,
            is_dry_run=dry_run,
            replication=replication,
            configs=_pairs("--config", config or []),
            has_groups=groups,
            has_access=access,
            passphrase=passphrase,
            is_confirmed=yes,
            bytes_per_s=_rate(bandwidth),
            progress_s=progress,
            is_json=output is Output.JSON,
        ),
    )
    if dry_run:
        _print_plans(report.backup, plans, output=output)
        return
    _print_restored(report, output=output)


@app.command(short_help="Delete backups, and the data that no other backup has")
def delete(
    store: FromOption,
    backups: Annotated[
        list[str] | None, typer.Argument(metavar="[BACKUP...]", help="Ids of backups")
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="NUMBER", min=1, help="Delete all but the newest, instead of ids"
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Delete data of interrupted backups, too; no backup may run"),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")] = False,
    endpoint: EndpointOption = "",
    region: RegionOption = "",
    access_key: AccessKeyOption = "",
    secret_key: SecretKeyOption = "",
    output: OutputOption = None,
) -> None:
    """Delete backups, then the objects that no other backup has. Asks for confirmation on a
    terminal."""
    from .backup_runner import run_delete, run_delete_plan

    if bool(backups) == (keep is not None):
        raise typer.BadParameter("give ids of backups, or --keep")
    place = _place(store, endpoint, region, access_key, secret_key)
    chosen = run_delete_plan(place, backups or [], keep or 0)
    losses = [count_text(len(chosen), "backup")] if chosen else []
    if force:
        losses.append("the data of interrupted backups")
    if losses and not yes and not confirmed(f"Delete {' and '.join(losses)}?"):
        raise InvalidRequest("no backup was deleted: not confirmed")
    done = run_delete(place, chosen, ignores_running=force)
    if output is Output.JSON:
        print_json({"deleted": done.backups, "objects": done.objects, "bytes": done.size})
        return
    echo(
        f"Deleted {count_text(len(done.backups), 'backup')},"
        f" {count_text(done.objects, 'object')}, {size_text(done.size)}."
    )


def _place(url: str, endpoint: str, region: str, access_key: str, secret_key: str) -> "StorePlace":
    """Return the store of the options."""
    from .backup_runner import StorePlace

    return StorePlace(url, endpoint, region, access_key, secret_key)


def _rate(text: str) -> int:
    """Return a size a second; 0 for none given."""
    from ..settings.quantities import parse_quantity

    if not text:
        return 0
    try:
        found = parse_quantity(text, "bytes")
    except ValueError as error:
        raise typer.BadParameter(f"--bandwidth: {text!r}: {error}") from None
    if found < 1:
        raise typer.BadParameter(f"--bandwidth: {text!r}: give 1 or more bytes a second")
    return found


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name and sign) or name in found:
            raise typer.BadParameter(f"{option} {text}: give NAME=VALUE, each name once")
        found[name] = value
    return found


def _summary_json(each: "BackupSummary") -> dict[str, object]:
    return {
        "backup": each.backup,
        "cluster": each.cluster or None,
        "started": None if each.error else time_text(each.started_ms),
        "ended": None if each.error else time_text(each.ended_ms),
        "topics": each.topics,
        "groups": each.groups,
        "records": each.records,
        "bytes": each.size,
        "problems": list(each.problems),
        "error": each.error or None,
    }


def _print_restored(report: "RestoreReport", *, output: Output | None) -> None:
    """Print the result of a restore. Raises BackupIncomplete if it has problems."""
    from .backup_runner import restore_json, restore_line

    if output is Output.JSON:
        print_json(restore_json(report))
    else:
        echo(restore_line(report))
    if report.problems:
        raise BackupIncomplete(
            f"backup {report.backup} was restored, with"
            f" {count_text(len(report.problems), 'problem')}: {report.problems[0]}"
        )


def _print_plans(backup: str, plans: list[dict[str, object]], *, output: Output | None) -> None:
    if output is Output.JSON:
        print_json({"backup": backup, "dry_run": True, "topics": plans})
        return
    print_table(
        ("topic", "restored as", "action", "partitions", "replicas", "records", "bytes"),
        [tuple(each.values()) for each in plans],
        empty="No topics match.",
    )
