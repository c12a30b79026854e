"""`quorumlog transactions list|describe|abort|find-hanging`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidRequest, TransactionalIdNotFound
from ..visible_text import shell_word
from .confirmation import confirmed
from .options import BootstrapOption, Output, OutputOption
from .output import count_text, echo, print_json, print_table, time_text
from .partitions.command import PartitionOption, SomeTopic
from .partitions.reassignment import partitions_of_topics, topics_of

if TYPE_CHECKING:
    from ..clients.admin.staged_commits import NamedCommits
    from ..clients.admin.transactions import OpenTransaction, TransactionalId
    from ..clients.blocking import Log

app = typer.Typer(
    help="List, describe and abort transactions, and find hanging ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Transactional id, or NAME#PRODUCER_ID of one attempt of staged commits",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")]


@app.command("list", short_help="List transactional ids")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Limit to this state, such as Ongoing or CompleteCommit; repeatable",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--open-for",
            metavar="SECONDS",
            min=0.0,
            help="Limit to transactions that began at least this long ago and are not complete",
        ),
    ] = 0.0,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """List the transactional ids of all brokers by name, with the state of the last transaction. A
    task attempt of staged commits is listed as NAME#PRODUCER_ID."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        found = log.admin.list_transactions(
            states=state or (), open_for_ms_min=round(seconds * 1000)
        )
    if output is Output.JSON:
        print_json([_id_json(each) for each in found])
        return
    print_table(
        ("transactional id", "state", "producer id", "began", "coordinator"),
        [
            (
                each.name,
                each.state,
                str(each.producer_id),
                None if each.started_ms < 0 else time_text(each.started_ms),
                each.coordinator,
            )
            for each in found
        ],
        empty="No transactional ids match --state and --open-for."
        if state or seconds
        else "No transactional ids. A producer with a transactional id creates it.",
    )


@app.command("describe", short_help="Show a transactional id and its open transaction")
def describe(
    name: NameArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show the producer and the state of a transactional id, and the partitions of its open
    transaction."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            found = log.admin.describe_transaction(name)
        except TransactionalIdNotFound:
            if _commits_of(log, name) is not None:
                raise TransactionalIdNotFound(
                    f"{name} is a name of staged commits; run `quorumlog commits describe"
                    f" {shell_word(name)}`"
                ) from None
            raise
    if output is Output.JSON:
        print_json(_id_json(found))
        return
    began = "" if found.started_ms < 0 else f", began {time_text(found.started_ms)}"
    echo(
        f"Transactional id {found.name}: {found.state}{began}, producer id {found.producer_id}, "
        f"epoch {found.producer_epoch}, timeout {found.timeout_ms} ms, coordinator "
        f"{found.coordinator}"
    )
    echo("")
    print_table(
        ("topic", "partition"), [tuple(each) for each in found.partitions], empty="No partitions."
    )


@app.command("abort", short_help="Abort an open transaction")
def abort(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Transactional id, name of staged commits, or NAME#PRODUCER_ID of one attempt",
        ),
    ],
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Abort the open transaction of a transactional id and fence its producer, which cannot commit
    any more. If ID is a name of staged commits, abort its current write with all attempts. Asks for
    confirmation on a terminal."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            found = log.admin.describe_transaction(name)
            thing = f"the transaction of {name}"
            question = f"Abort {thing} ({found.state}) and fence its producer?"
        except TransactionalIdNotFound:
            stage = _commits_of(log, name)
            if stage is None:
                raise
            thing = f"write {stage.write_id} of the staged commits {name}"
            question = f"Abort {thing} ({count_text(stage.open + stage.sealed, 'attempt')})?"
        if not yes and not confirmed(question):
            raise InvalidRequest(f"{thing} was not aborted: not confirmed")
        log.admin.abort_transaction(name)
    echo(f"Aborted {thing}.")


def _commits_of(log: "Log", name: str) -> "NamedCommits | None":
    """Return the staged commits of a name; None if there is no such name."""
    try:
        return log.admin.describe_commits(name)
    except TransactionalIdNotFound:
        return None


@app.command("find-hanging", short_help="Find transactions that no coordinator will end")
def find_hanging(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    end: Annotated[
        bool, typer.Option("--abort", help="Abort them: write an abort marker for each")
    ] = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Find transactions that are open in a partition and that no coordinator has. Readers of
    committed records wait for them forever; retention and compaction do not pass them.
    --abort asks for confirmation on a terminal."""
    from . import settings

    if partition and topic is None:
        raise typer.BadParameter("--partition requires TOPIC")
    with settings.open_log(bootstrap=bootstrap) as log:
        places = partitions_of_topics(topics_of(log, topic), partition)
        found = log.admin.find_hanging_transactions(places) if places else []
        if end and found:
            question = f"Abort {count_text(len(found), 'transaction')}?"
            if not yes and not confirmed(question):
                raise InvalidRequest("no hanging transaction was aborted: not confirmed")
            for each in found:
                log.admin.abort_hanging_transaction(each)
    if output is Output.JSON:
        print_json([_open_json(each) for each in found])
        return
    print_table(
        ("topic", "partition", "first offset", "producer id", "epoch", "last batch"),
        [
            (
                each.topic,
                each.partition,
                each.first_offset,
                str(each.producer.producer_id),
                each.producer.producer_epoch,
                None if each.last_timestamp_ms < 0 else time_text(each.last_timestamp_ms),
            )
            for each in found
        ],
        empty="No hanging transactions.",
    )
    if found and end:
        echo(f"Aborted {count_text(len(found), 'transaction')}.")


def _id_json(found: "TransactionalId") -> dict[str, Any]:
    return {
        "transactional_id": found.name,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": None if found.producer_epoch < 0 else found.producer_epoch,
        "started_ms": None if found.started_ms < 0 else found.started_ms,
        "timeout_ms": found.timeout_ms or None,
        "partitions": [list(each) for each in found.partitions],
        "coordinator": found.coordinator,
    }


def _open_json(found: "OpenTransaction") -> dict[str, Any]:
    return {
        "topic": found.topic,
        "partition": found.partition,
        "first_offset": found.first_offset,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "coordinator_epoch": None if found.coordinator_epoch < 0 else found.coordinator_epoch,
        "last_timestamp_ms": None if found.last_timestamp_ms < 0 else found.last_timestamp_ms,
    }
