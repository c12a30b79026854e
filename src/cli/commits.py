"""`quorumlog commits list|describe|reset|delete`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidRequest, TransactionalIdNotFound
from .confirmation import confirmed
from .names import unknown_commits
from .options import BootstrapOption, Output, OutputOption
from .output import count_text, echo, print_json, print_table, time_text

if TYPE_CHECKING:
    from ..clients.admin.staged_commits import CommitAttempt, NamedCommits

app = typer.Typer(
    help="List and describe staged commits, reset and delete their names.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the commits")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")]


@app.command("list", short_help="List the names of staged commits")
def list_names(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the names with the last committed batch and the number of unfinished task attempts."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        found = log.admin.list_commits()
    if output is Output.JSON:
        print_json([commits_json(each) for each in found])
        return
    print_table(
        ("name", "last batch", "records", "open", "sealed", "completing", "oldest", "coordinator"),
        [
            (
                each.name,
                _number(each.last_committed),
                each.committed_records if each.committed_write_id >= 0 else None,
                each.open,
                each.sealed,
                each.completing,
                None if each.oldest_started_ms < 0 else time_text(each.oldest_started_ms),
                each.coordinator,
            )
            for each in found
        ],
        empty="No staged commits. The first task of a write creates its name.",
    )


@app.command("describe", short_help="Show a name's last batch and its attempts")
def describe(
    name: NameArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show the last committed batch of a name, its current write, and the task attempts that hold
    partitions."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            found = log.admin.describe_commits(name)
        except TransactionalIdNotFound:
            raise unknown_commits(log, name) from None
    if output is Output.JSON:
        print_json(commits_json(found))
        return
    batch = "no batch is committed"
    if found.last_committed >= 0:
        batch = f"last batch {found.last_committed}"
        if found.committed_write_id >= 0:
            batch += (
                f", {count_text(found.committed_records, 'record')} of write"
                f" {found.committed_write_id}"
            )
    echo(
        f"Staged commits {found.name}: {batch}; current write {found.write_id} of"
        f" batch {found.number}, changed {time_text(found.updated_ms)}, coordinator"
        f" {found.coordinator}"
    )
    echo("")
    print_table(
        ("task", "attempt", "write", "producer id", "state", "began", "partitions", "records"),
        [
            (
                each.task,
                str(each.attempt),
                each.write_id,
                str(each.producer.producer_id),
                each.state,
                time_text(each.started_ms),
                each.partitions,
                each.records if each.state != "Open" else None,
            )
            for each in found.attempts
        ],
        empty="No attempts.",
    )
    echo("")
    if found.partitions:
        echo("Partitions that readers wait for:")
    print_table(
        ("topic", "partition"),
        [tuple(each) for each in found.partitions],
        empty="No partition is held.",
    )


@app.command(
    "reset",
    short_help="Set the last committed batch of a name",
    epilog="""\b
Examples:
  quorumlog commits reset daily-report --to 16
  quorumlog commits reset daily-report --to -1 --yes
""",
)
def reset(
    name: NameArgument,
    to: Annotated[
        int,
        typer.Option(
            "--to",
            metavar="NUMBER",
            min=-1,
            help="Last committed batch after the reset, or -1 for none",
        ),
    ],
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Set the last committed batch of a name, and abort its current write. Committed records are
    not deleted; a repeated batch is stored again. Asks for confirmation on a terminal."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            found = log.admin.describe_commits(name)
        except TransactionalIdNotFound:
            raise unknown_commits(log, name) from None
        question = f"Set the last batch of {name} from {found.last_committed} to {to}?"
        if found.open + found.sealed:
            question += f" {count_text(found.open + found.sealed, 'attempt')} will be aborted."
        if not yes and not confirmed(question):
            raise InvalidRequest(f"staged commits {name}: the name was not reset: not confirmed")
        log.admin.reset_commits(name, to)
    if output is Output.JSON:
        print_json({"name": name, "before": found.last_committed, "after": to})
    else:
        echo(f"The last batch of {name} was {found.last_committed} and is {to}.")


@app.command("delete", short_help="Delete a name of staged commits")
def delete(
    name: NameArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete a name without attempts. Its records stay, but a repeated batch is stored again.
    Asks for confirmation on a terminal."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        if not yes and not confirmed(f"Delete the name {name}? Its batches can be written again."):
            raise InvalidRequest(f"staged commits {name}: the name was not deleted: not confirmed")
        try:
            log.admin.delete_commits(name)
        except TransactionalIdNotFound:
            raise unknown_commits(log, name) from None
    if output is Output.JSON:
        print_json({"deleted": name})
    else:
        echo(f"The name {name} is deleted.")


def commits_json(found: "NamedCommits") -> dict[str, Any]:
    """Return the JSON object of a name."""
    return {
        "name": found.name,
        "last_committed": _number(found.last_committed),
        "committed_write_id": _number(found.committed_write_id),
        "committed_records": found.committed_records if found.committed_write_id >= 0 else None,
        "write_id": _number(found.write_id),
        "number": _number(found.number),
        "open": found.open,
        "sealed": found.sealed,
        "completing": found.completing,
        "oldest_started_ms": _number(found.oldest_started_ms),
        "updated_ms": found.updated_ms,
        "coordinator": found.coordinator,
        "attempts": [_attempt_json(each) for each in found.attempts],
        "partitions": [list(each) for each in found.partitions],
    }


def _attempt_json(attempt: "CommitAttempt") -> dict[str, Any]:
    return {
        "task": attempt.task,
        "attempt": attempt.attempt,
        "write_id": attempt.write_id,
        "producer_id": attempt.producer.producer_id,
        "producer_epoch": attempt.producer.producer_epoch,
        "state": attempt.state,
        "started_ms": attempt.started_ms,
        "partitions": attempt.partitions,
        "records": attempt.records if attempt.state != "Open" else None,
    }


def _number(value: int) -> int | None:
    """Return a number, None for -1: there is none."""
    return None if value < 0 else value
