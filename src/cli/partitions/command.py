"""`quorumlog partitions status|reassign|elect-leader`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...clients.admin.health import STATES, needs_attention, states_of, summary
from ...clients.admin.plans import Plan, plan_json
from ...errors import ElectionNotNeeded, InvalidRequest
from ..completion import topic_names
from ..confirmation import confirmed
from ..failures import EXIT_ERROR
from ..options import BootstrapOption, Output, OutputOption
from ..output import count_text, echo, print_json, print_table
from .reassignment import (
    ReassignOptions,
    cancel_reassignments,
    make_plan,
    partitions_of_topics,
    topics_of,
    wait_in_sync,
    wait_reassigned,
)

if TYPE_CHECKING:
    from ...clients.admin.descriptions import Partition
    from ...clients.admin.partitions import PartitionOutcome

app = typer.Typer(
    help="Show partition health, reassign replicas, elect leaders.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SomeTopic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC", help="Name of a topic  [default: all topics]", autocompletion=topic_names
    ),
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", metavar="NUMBER", min=0, help="Limit to this partition; repeatable"
    ),
]

ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="IDS", help="Set these replicas, the preferred leader first"),
]
BrokersOption = Annotated[
    str | None,
    typer.Option("--brokers", metavar="IDS", help="Place replicas on these brokers only"),
]
DrainOption = Annotated[
    str | None, typer.Option("--drain", metavar="IDS", help="Move all replicas off these brokers")
]
ReplicationOption = Annotated[
    int | None,
    typer.Option("--replication", "-r", metavar="NUMBER", min=1, help="Set the number of replicas"),
]
FileOption = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="Execute a plan in JSON; - for stdin")
]


@app.command(
    short_help="Show unhealthy partitions",
    epilog="\b\nStates, the worst first:\n"
    + "\n".join(f"  {name:<17} {text}" for name, text in STATES.items()),
)
def status(
    topic: SomeTopic = None,
    everything: Annotated[bool, typer.Option("--all", help="Include healthy partitions")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Count partitions by state, and list unhealthy ones."""
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        topics = topics_of(log, topic)
    rows = [
        (each.name, partition, states_of(partition))
        for each in topics
        for partition in each.partitions
    ]
    shown = [row for row in rows if everything or needs_attention(row[2])]
    counts = summary(topics)
    if output is Output.JSON:
        print_json({"counts": counts, "partitions": [_state_json(*row) for row in shown]})
        return
    found = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    echo(f"{count_text(counts['partitions'], 'partition')}: {found or 'all healthy'}.")
    if shown:
        echo("")
        print_table(
            (
                "topic",
                "partition",
                "state",
                "leader",
                "replicas",
                "isr",
                "min isr",
                "elr",
                "moving",
            ),
            [
                (
                    name,
                    partition.partition,
                    ", ".join(states) or "healthy",
                    partition.leader,
                    partition.replicas,
                    partition.isr,
                    partition.min_isr,
                    partition.elr,
                    _moves(partition.adding, partition.removing),
                )
                for name, partition, states in shown
            ],
            empty="",
        )


@app.command(
    short_help="Wait until partitions are in sync",
    epilog="""\b
Examples:
  quorumlog partitions wait --in-sync                      # all partitions of the cluster
  quorumlog partitions wait flights audit --in-sync --timeout 60
""",
)
def wait(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC...", help="Names of topics  [default: all]", autocompletion=topic_names
        ),
    ] = None,
    in_sync: Annotated[
        bool, typer.Option("--in-sync", help="Wait until every replica is in the ISR; required")
    ] = False,
    timeout: Annotated[
        int,
        typer.Option(
            "--timeout", metavar="SECONDS", min=1, max=86_400, help="Maximum time to wait"
        ),
    ] = 300,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Wait until every partition has a leader and all replicas in its ISR, including internal
    topics. Replicas that a reassignment adds do not count.

    The exit code is 0 when all are in sync. After --timeout it is 1, and the partitions that are
    not in sync are listed.
    """
    from .. import settings

    if not in_sync:
        raise typer.BadParameter("give --in-sync, the condition to wait for")
    with settings.open_log(bootstrap=bootstrap) as log:
        count, lagging = wait_in_sync(log, topics or [], timeout)
    if output is Output.JSON:
        print_json(
            {
                "in_sync": not lagging,
                "partitions": [_state_json(*each, states_of(each[1])) for each in lagging],
            }
        )
    elif not lagging:
        verb = "is" if count == 1 else "are"
        echo(f"{count_text(count, 'partition')} {verb} in sync.")
    if not lagging:
        return
    if output is not Output.JSON:
        for name, partition in lagging:
            echo(
                f"{name}-{partition.partition}: ISR {list(partition.isr)} of replicas "
                f"{list(partition.replicas)}",
                err=True,
            )
        echo(
            f"quorumlog: {count_text(len(lagging), 'partition')} not in sync after {timeout} s; "
            "`quorumlog explain not-isr` shows the cause",
            err=True,
        )
    raise typer.Exit(EXIT_ERROR)


@app.command(
    short_help="Move replicas to other brokers, or cancel moves",
    epilog="""\b
Examples:
  quorumlog partitions reassign flights -p 0 --to 2,3,1      # broker 2 becomes preferred leader
  quorumlog partitions reassign flights --brokers 1,2,3      # use three brokers
  quorumlog partitions reassign flights --replication 3      # three replicas each
  quorumlog partitions reassign --drain 3 --wait             # remove all replicas from broker 3
  quorumlog partitions reassign --drain 3 --dry-run > plan   # write a plan to edit
  quorumlog partitions reassign --file plan
  quorumlog partitions reassign flights --cancel

\b
Limit the bandwidth of moves:
  quorumlog configs alter --cluster --set replication.throttled.rate=50MiB
""",
)
def reassign(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    to: ToOption = None,
    brokers: BrokersOption = None,
    drain: DrainOption = None,
    replication: ReplicationOption = None,
    file: FileOption = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel reassignments in progress")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan for --file, change nothing")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all moves are complete")] = False,
    timeout: Annotated[
        int,
        typer.Option("--timeout", metavar="SECONDS", min=1, help="Maximum time of --wait"),
    ] = 86_400,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Move replicas to other brokers while the partitions are in use.

    New replicas catch up before old ones are removed. A rule (--brokers, --drain, --replication)
    moves as few replicas as possible. The exit code is 1 if a partition is rejected; the others
    move.
    """
    from .. import settings

    options = ReassignOptions(
        topic=topic,
        numbers=tuple(partition or ()),
        to=to,
        file=file,
        cancel=cancel,
        brokers=brokers,
        drain=drain,
        replication=replication,
    )
    options.check()
    if dry_run and cancel:
        raise typer.BadParameter("--cancel has no plan for --dry-run to print; give one of them")
    with settings.open_log(bootstrap=bootstrap) as log:
        plan = {} if cancel else make_plan(log, options)
        if dry_run:
            print_json(plan_json(plan))
            return
        if cancel:
            outcomes = cancel_reassignments(log, options)
        else:
            outcomes = log.admin.reassign_partitions(plan) if plan else []
        if wait:
            started = [(each.topic, each.partition) for each in outcomes if each.error is None]
            wait_reassigned(log, started, timeout)
    done = "no longer moving" if cancel else "moved" if wait else "being moved"
    _print_outcomes(outcomes, plan, done, output)


@app.command(
    "elect-leader",
    short_help="Elect preferred leaders, or elect a leader uncleanly",
    epilog="""\b
Examples:
  quorumlog partitions elect-leader                         # all partitions
  quorumlog partitions elect-leader flights -p 0 -p 1
  quorumlog partitions elect-leader flights -p 0 --unclean
""",
)
def elect_leader(
    topic: SomeTopic = None,
    partition: PartitionOption = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect a live replica outside the ISR if no other leader is possible; may lose "
            "acknowledged records",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Elect the preferred leader (the first replica of the assignment) where it is in sync.

    The exit code is 1 if a partition is rejected. --unclean asks for confirmation on a terminal.
    """
    from .. import settings

    if partition and topic is None:
        raise typer.BadParameter("--partition requires TOPIC")
    if unclean and not (topic and partition):
        raise typer.BadParameter("--unclean may lose records; give TOPIC and each --partition")
    with settings.open_log(bootstrap=bootstrap) as log:
        places = [] if topic is None else partitions_of_topics(topics_of(log, topic), partition)
        if unclean and not yes:
            named = ", ".join(f"{name}-{number}" for name, number in places)
            if not confirmed(f"Elect a leader of {named} that may lack acknowledged records?"):
                raise InvalidRequest("no leader was elected: not confirmed")
        outcomes = log.admin.elect_leaders(places, unclean=unclean)
    done = [each for each in outcomes if not isinstance(each.error, ElectionNotNeeded)]
    _print_outcomes(done, {}, "led by another replica now", output)


def _print_outcomes(
    outcomes: "Sequence[PartitionOutcome]", plan: Plan, done: str, output: Output | None
) -> None:
    """Print the outcome of each partition; exit with code 1 if one was rejected."""
    rejected = [each for each in outcomes if each.error is not None]
    if output is Output.JSON:
        print_json({"partitions": [_outcome_json(each, plan) for each in outcomes]})
    else:
        changed = len(outcomes) - len(rejected)
        if outcomes:
            are = "is" if changed == 1 else "are"
            echo(f"{count_text(changed, 'partition')} {are} {done}.")
        else:
            echo("Nothing to do.")
        for each in rejected:
            echo(f"{each.topic}-{each.partition}: {_error_text(each)}", err=True)
    if rejected:
        raise typer.Exit(EXIT_ERROR)


def _state_json(topic: str, partition: "Partition", states: Sequence[str]) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition.partition,
        "states": list(states),
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "min_isr": partition.min_isr,
        "elr": list(partition.elr),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
    }


def _outcome_json(outcome: "PartitionOutcome", plan: Plan) -> dict[str, Any]:
    replicas = plan.get((outcome.topic, outcome.partition))
    return {
        "topic": outcome.topic,
        "partition": outcome.partition,
        "replicas": None if replicas is None else list(replicas),
        "error": None if outcome.error is None else outcome.error.name,
        "message": None if outcome.error is None else _error_text(outcome),
    }


def _error_text(outcome: "PartitionOutcome") -> str:
    return "" if outcome.error is None else outcome.error.message


def _moves(adding: Sequence[int], removing: Sequence[int]) -> str:
    return " ".join([*(f"+{node}" for node in adding), *(f"-{node}" for node in removing)]) or "-"
