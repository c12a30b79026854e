"""`quorumlog quorum status|add-voter|remove-voter|transfer`."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig, InvalidRequest, TimedOut
from .options import Output, OutputOption
from .output import id_text, print_json, print_table

if TYPE_CHECKING:
    from ..clients import Quorum, QuorumReplica
    from ..clients.blocking import Log

app = typer.Typer(
    help="The metadata quorum: who leads, who votes, who follows.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LOOK_S = 0.1  # between two looks at who leads
AGAIN_S = 3.0  # after which a transfer that did not come about is asked for again

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="The address of a broker or a controller, or several by commas.  "
        "[env var: QUORUMLOG_BOOTSTRAP; default: 127.0.0.1:9094]",
    ),
]
DirectoryOption = Annotated[
    str,
    typer.Option("--directory-id", metavar="ID", help="The disk, where a node may have two."),
]
TimeoutOption = Annotated[
    int,
    typer.Option("--timeout", metavar="SECONDS", min=1, max=86_400, help="How long to try."),
]


@app.command(short_help="Show who leads, who votes, who follows, and how far each is.")
def status(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """Show who leads, who votes, who follows, and how far each is.

    Without a leader that answers it shows what the asked node knows, says so, and exits with 0 all
    the same; for programs, `answered_by` is then not `leader`.
    """
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        quorum = log.admin.describe_quorum()
    if output is Output.JSON:
        print_json(_json(quorum))
        return
    leader = "none is known" if quorum.leader is None else f"node {quorum.leader}"
    typer.echo(f"leader          {leader}")
    typer.echo(f"epoch           {quorum.epoch:,}")
    typer.echo(f"high watermark  {quorum.high_watermark:,}")
    if quorum.leader != quorum.answered_by:
        why = "No leader is known" if quorum.leader is None else "The leader does not answer"
        typer.echo(f"{why}: this is what node {quorum.answered_by} knows.")
    typer.echo("")
    print_table(
        ("node", "role", "directory id", "address", "log end", "lag", "heard (ms ago)"),
        [
            *(_row(each, "voter", quorum) for each in quorum.voters),
            *(_row(each, "observer", quorum) for each in quorum.observers),
        ],
        empty="No voter is known.",
    )


@app.command("add-voter", short_help="Give a node that follows the log a vote.")
def add_voter(
    node_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="The node's id.")],
    directory_id: DirectoryOption = "",
    address: Annotated[
        str,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="Where the other members reach it; default: where it follows from.",
        ),
    ] = "",
    timeout: TimeoutOption = 30,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Give a node that follows the log a vote, and wait until that is committed.

    The node runs already, formatted with --no-initial-voters; it is waited for while it catches up.
    """
    from . import settings

    disk = _directory(directory_id)
    with settings.open_log(bootstrap=bootstrap, call_timeout_ms=1000 * timeout) as log:
        log.admin.add_voter(node_id, directory_id=disk, address=address)
        quorum = log.admin.describe_quorum()
    _say(quorum, f"Node {node_id} votes.", output)


@app.command("remove-voter", short_help="Take a node's vote.")
def remove_voter(
    node_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="The node's id.")],
    directory_id: DirectoryOption = "",
    timeout: TimeoutOption = 30,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Take a node's vote, and wait until that is committed; the leader's, too, which then leads no
    more.

    The node goes on following as an observer until it is stopped.
    """
    from . import settings

    disk = _directory(directory_id)
    with settings.open_log(bootstrap=bootstrap, call_timeout_ms=1000 * timeout) as log:
        log.admin.remove_voter(node_id, directory_id=disk)
        quorum = log.admin.describe_quorum()
    _say(quorum, f"Node {node_id} has no vote.", output)


@app.command(short_help="Have another voter lead.")
def transfer(
    node_id: Annotated[
        int | None,
        typer.Argument(
            metavar="ID", min=0, help="The node that shall lead; default: the one furthest."
        ),
    ] = None,
    timeout: TimeoutOption = 30,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Have another voter lead, and wait until one does."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap, call_timeout_ms=1000 * timeout) as log:
        quorum = log.admin.describe_quorum()
        if node_id is None or quorum.leader != node_id:
            quorum = _handed_over(log, node_id, time.monotonic() + timeout)
    _say(quorum, f"Node {quorum.leader} leads.", output)


def _handed_over(log: "Log", wanted: int | None, end: float) -> "Quorum":
    """Ask for the transfer until it came about; a leader gives up one that takes too long."""
    while True:
        ended = log.admin.transfer_leadership(wanted)
        again = time.monotonic() + AGAIN_S
        while time.monotonic() < again:
            if _is_done(quorum := log.admin.describe_quorum(), ended, wanted):
                return quorum
            if time.monotonic() > end:
                raise TimedOut(_left_open(quorum, wanted))
            time.sleep(LOOK_S)


def _is_done(quorum: "Quorum", ended_epoch: int, wanted: int | None) -> bool:
    if quorum.leader is None or quorum.epoch <= ended_epoch:
        return False
    return wanted is None or quorum.leader == wanted


def _left_open(quorum: "Quorum", wanted: int | None) -> str:
    leader = "no node leads" if quorum.leader is None else f"node {quorum.leader} leads"
    whom = "" if wanted is None else f" to node {wanted}"
    return f"{leader}: the transfer{whom} did not come about; see `quorumlog quorum status`, repeat"


def _say(quorum: "Quorum", sentence: str, output: Output | None) -> None:
    if output is Output.JSON:
        print_json(_json(quorum))
        return
    voters = ", ".join(str(each.id) for each in quorum.voters)
    typer.echo(f"{sentence} Voters: {voters}.")


def _directory(text: str) -> bytes | None:
    """Return a directory id from the command line; raises InvalidRequest."""
    if not text:
        return None
    from ..server.addresses import parse_id

    try:
        return parse_id(text, f"--directory-id is {text!r}")
    except InvalidConfig as error:
        raise InvalidRequest(error.message) from None


def _row(each: "QuorumReplica", role: str, quorum: "Quorum") -> tuple[object, ...]:
    return (
        each.id,
        "leader" if each.id == quorum.leader and role == "voter" else role,
        id_text(each.directory_id),
        each.address or "-",
        each.log_end_offset,
        each.lag,
        each.heard_ms_ago,
    )


def _json(quorum: "Quorum") -> dict[str, Any]:
    return {
        "leader": quorum.leader,
        "epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [_replica_json(each) for each in quorum.voters],
        "observers": [_replica_json(each) for each in quorum.observers],
        "cluster_id": quorum.cluster_id,
        "answered_by": quorum.answered_by,
    }


def _replica_json(each: "QuorumReplica") -> dict[str, Any]:
    return {
        "id": each.id,
        "directory_id": id_text(each.directory_id),
        "log_end_offset": each.log_end_offset,
        "lag": each.lag,
        "address": each.address or None,
        "heard_ms_ago": each.heard_ms_ago,
    }
