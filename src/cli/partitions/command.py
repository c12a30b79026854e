"""`quorumlog partitions status|reassign|elect-leader`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ElectionNotNeeded, InvalidRequest
from ..completion import topic_names
from ..confirmation import confirmed
from ..failures import EXIT_ERROR
from ..options import BootstrapOption, Output, OutputOption
from ..output import count_text, print_json, print_table
from .health import STATES, needs_a_look, states_of, summary
from .moving import Wanted, cancelled, places_of, plan_of, topics_of, wait_moved
from .plans import Plan, plan_json

if TYPE_CHECKING:
    from ...clients import Partition, PartitionOutcome

app = typer.Typer(
    help="How partitions are, on which brokers they are, and who leads them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SomeTopic = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="Default: all topics.", autocompletion=topic_names),
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", metavar="NUMBER", min=0, help="Only this partition; repeatable."
    ),
]

ToOption = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="IDS", help="Brokers of the named partitions, the preferred leader first."
    ),
]
BrokersOption = Annotated[
    str | None, typer.Option("--brokers", metavar="IDS", help="Use these brokers and no others.")
]
DrainOption = Annotated[
    str | None, typer.Option("--drain", metavar="IDS", help="Use these brokers no more.")
]
ReplicationOption = Annotated[
    int | None,
    typer.Option("--replication", "-r", metavar="NUMBER", min=1, help="So many replicas."),
]
FileOption = Annotated[
    str | None, typer.Option("--file", metavar="FILE", help="A plan in JSON; - is stdin.")
]


@app.command(
    short_help="Show which partitions are not as they should be.",
    epilog="\b\nStates, the worst first:\n"
    + "\n".join(f"  {name:<17} {text}" for name, text in STATES.items()),
)
def status(
    topic: SomeTopic = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also partitions that are as they should be.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Count partitions by their state, and show those that are not as they should be."""
    from .. import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        topics = topics_of(log, topic)
    rows = [
        (each.name, partition, states_of(partition))
        for each in topics
        for partition in each.partitions
    ]
    shown = [row for row in rows if everything or needs_a_look(row[2])]
    counts = summary(topics)
    if output is Output.JSON:
        print_json({"counts": counts, "partitions": [_state_json(*row) for row in shown]})
        return
    found = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    typer.echo(f"{count_text(counts['partitions'], 'partition')}: {found or 'all in order'}.")
    if shown:
        typer.echo("")
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
                    ", ".join(states) or "in order",
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
    short_help="Move partitions to other brokers, or give up such moves.",
    epilog="""\b
Examples:
  quorumlog partitions reassign flights -p 0 --to 2,3,1      these brokers; 2 is to lead
  quorumlog partitions reassign flights --brokers 1,2,3      spread the topic over three brokers
  quorumlog partitions reassign flights --replication 3      give it three replicas
  quorumlog partitions reassign --drain 3 --wait             take everything off broker 3
  quorumlog partitions reassign --drain 3 --dry-run > plan   look at the plan, change it
  quorumlog partitions reassign --file plan
  quorumlog partitions reassign flights --cancel

\b
What a move may read, so that clients have room:
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
    cancel: Annotated[bool, typer.Option("--cancel", help="Give up what is under way.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan for --file, change nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all moves are over.")] = False,
    timeout: Annotated[
        int,
        typer.Option("--timeout", metavar="SECONDS", min=1, help="How long --wait waits."),
    ] = 86_400,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Move partitions to other brokers while they are used: new replicas catch up, then the old
    ones go. A rule (--brokers, --drain, --replication) moves no more than it must.

    Exit code 1 when a partition was refused; the others are moved all the same.
    """
    from .. import settings

    wanted = Wanted(
        topic=topic,
        numbers=tuple(partition or ()),
        to=to,
        file=file,
        cancel=cancel,
        brokers=brokers,
        drain=drain,
        replication=replication,
    )
    wanted.check()
    if dry_run and cancel:
        raise typer.BadParameter("--dry-run prints a plan, and --cancel has none")
    with settings.open_log(bootstrap=bootstrap) as log:
        plan = {} if cancel else plan_of(log, wanted)
        if dry_run:
            print_json(plan_json(plan))
            return
        if cancel:
            outcomes = cancelled(log, wanted)
        else:
            outcomes = log.admin.reassign_partitions(plan) if plan else []
        if wait:
            begun = [(each.topic, each.partition) for each in outcomes if each.error is None]
            wait_moved(log, begun, timeout)
    done = "as before" if cancel else "where they shall be" if wait else "being moved"
    _tell(outcomes, plan, done, output)


@app.command(
    "elect-leader",
    short_help="Have the preferred replicas lead, or a replica that may lack records.",
    epilog="""\b
Examples:
  quorumlog partitions elect-leader                         wherever it is not so
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
            help="Where nobody can lead without possible loss: a live replica leads, and records "
            "that were acknowledged may be lost.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; nobody is asked without a terminal.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Have the first replicas of the assignments lead where they are in sync and others lead.

    Exit code 1 when a partition was refused.
    """
    from .. import settings

    if partition and topic is None:
        raise typer.BadParameter("--partition goes with a topic")
    if unclean and not (topic and partition):
        raise typer.BadParameter("--unclean may lose records: name a topic and each --partition")
    with settings.open_log(bootstrap=bootstrap) as log:
        places = [] if topic is None else places_of(topics_of(log, topic), partition)
        if unclean and not yes:
            named = ", ".join(f"{name}-{number}" for name, number in places)
            if not confirmed(f"Let a replica lead {named} that may lack acknowledged records?"):
                raise InvalidRequest("nobody was elected")
        outcomes = log.admin.elect_leaders(places, unclean=unclean)
    done = [each for each in outcomes if not isinstance(each.error, ElectionNotNeeded)]
    _tell(done, {}, "led by another replica now", output)


def _tell(
    outcomes: "Sequence[PartitionOutcome]", plan: Plan, done: str, output: Output | None
) -> None:
    """Say what became of each partition; exit code 1 when one was refused."""
    refused = [each for each in outcomes if each.error is not None]
    if output is Output.JSON:
        print_json({"partitions": [_outcome_json(each, plan) for each in outcomes]})
    else:
        changed = len(outcomes) - len(refused)
        if outcomes:
            are = "is" if changed == 1 else "are"
            typer.echo(f"{count_text(changed, 'partition')} {are} {done}.")
        else:
            typer.echo("There is nothing to do.")
        for each in refused:
            typer.echo(f"{each.topic}-{each.partition}: {_plain(each)}", err=True)
    if refused:
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
        "message": None if outcome.error is None else _plain(outcome),
    }


def _plain(outcome: "PartitionOutcome") -> str:
    return "" if outcome.error is None else outcome.error.message


def _moves(adding: Sequence[int], removing: Sequence[int]) -> str:
    return " ".join([*(f"+{node}" for node in adding), *(f"-{node}" for node in removing)]) or "-"
