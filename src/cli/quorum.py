"""`quorumlog quorum status|add-voter|remove-voter|transfer`."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig, InvalidRequest, TimedOut
from .options import Output, OutputOption
from .output import echo, id_text, print_json, print_table

if TYPE_CHECKING:
    from ..clients.admin.quorum import Quorum, QuorumReplica
    from ..clients.blocking import Log

app = typer.Typer(
    help="Show the metadata quorum, change its voters, transfer its leadership.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

POLL_S = 0.1  # between two requests for the quorum's state
RETRY_S = 3.0  # after which a transfer without effect is requested again

BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="Address of a broker or a controller, or a comma-separated list  "
        "[env var: QUORUMLOG_BOOTSTRAP; default: 127.0.0.1:9094]",
    ),
]
DirectoryOption = Annotated[
    str,
    typer.Option(
        "--directory-id", metavar="ID", help="Directory id of the voter, if the node has two"
    ),
]
TimeoutOption = Annotated[
    int,
    typer.Option("--timeout", metavar="SECONDS", min=1, max=86_400, help="Maximum time to wait"),
]


@app.command(short_help="Show the leader, voters, observers and their lag")
def status(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """Show the leader, the voters and the observers, with log end offset and lag.

    If no leader answers, the command shows the state of the node that does, says so, and still
    exits with 0. In JSON, `answered_by` then differs from `leader`.
    """
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        quorum = log.admin.describe_quorum()
    if output is Output.JSON:
        print_json(_json(quorum))
        return
    leader = "none" if quorum.leader is None else f"node {quorum.leader}"
    echo(f"leader          {leader}")
    echo(f"epoch           {quorum.epoch:,}")
    echo(f"high watermark  {quorum.high_watermark:,}")
    if quorum.leader != quorum.answered_by:
        why = "No leader is elected" if quorum.leader is None else "The leader does not answer"
        echo(f"{why}; this is the state of node {quorum.answered_by}.")
    echo("")
    print_table(
        ("node", "role", "directory id", "address", "log end", "lag", "heard (ms ago)"),
        [
            *(_row(each, "voter", quorum) for each in quorum.voters),
            *(_row(each, "observer", quorum) for each in quorum.observers),
        ],
        empty="No voters.",
    )


@app.command("add-voter", short_help="Make an observer a voter")
def add_voter(
    node_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="Node id")],
    directory_id: DirectoryOption = "",
    address: Annotated[
        str,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="Address for the other members  [default: the one it registered]",
        ),
    ] = "",
    timeout: TimeoutOption = 30,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Make an observer a voter, and wait until the change is committed.

    The node must run and be formatted with --no-initial-voters. The command waits for it to catch
    up.
    """
    from . import settings

    disk = _directory(directory_id)
    with settings.open_log(bootstrap=bootstrap, call_timeout_ms=1000 * timeout) as log:
        log.admin.add_voter(node_id, directory_id=disk, address=address)
        quorum = log.admin.describe_quorum()
    _print_voters(quorum, f"Node {node_id} is a voter.", output)


@app.command("remove-voter", short_help="Make a voter an observer")
def remove_voter(
    node_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="Node id")],
    directory_id: DirectoryOption = "",
    timeout: TimeoutOption = 30,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Make a voter an observer, and wait until the change is committed.

    The node follows the log as an observer until it is stopped. A removed leader resigns.
    """
    from . import settings

    disk = _directory(directory_id)
    with settings.open_log(bootstrap=bootstrap, call_timeout_ms=1000 * timeout) as log:
        log.admin.remove_voter(node_id, directory_id=disk)
        quorum = log.admin.describe_quorum()
    _print_voters(quorum, f"Node {node_id} is not a voter.", output)


@app.command(short_help="Transfer the leadership to another voter")
def transfer(
    node_id: Annotated[
        int | None,
        typer.Argument(
            metavar="ID", min=0, help="New leader  [default: the voter with the longest log]"
        ),
    ] = None,
    timeout: TimeoutOption = 30,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Transfer the leadership to another voter, and wait until it leads."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap, call_timeout_ms=1000 * timeout) as log:
        quorum = log.admin.describe_quorum()
        if node_id is None or quorum.leader != node_id:
            quorum = _transfer(log, node_id, time.monotonic() + timeout)
    _print_voters(quorum, f"Node {quorum.leader} leads.", output)


def _transfer(log: "Log", wanted: int | None, end: float) -> "Quorum":
    """Request the transfer until it takes effect; a leader abandons one that takes too long."""
    while True:
        ended_epoch = log.admin.transfer_leadership(wanted)
        retry = time.monotonic() + RETRY_S
        while time.monotonic() < retry:
            if _is_done(quorum := log.admin.describe_quorum(), ended_epoch, wanted):
                return quorum
            if time.monotonic() > end:
                raise TimedOut(_timeout_text(quorum, wanted))
            time.sleep(POLL_S)


def _is_done(quorum: "Quorum", ended_epoch: int, wanted: int | None) -> bool:
    if quorum.leader is None or quorum.epoch <= ended_epoch:
        return False
    return wanted is None or quorum.leader == wanted


def _timeout_text(quorum: "Quorum", wanted: int | None) -> str:
    leader = "no node leads" if quorum.leader is None else f"node {quorum.leader} leads"
    target = "" if wanted is None else f" to node {wanted}"
    return f"the transfer{target} timed out; {leader}; see `quorumlog quorum status`, then retry"


def _print_voters(quorum: "Quorum", sentence: str, output: Output | None) -> None:
    if output is Output.JSON:
        print_json(_json(quorum))
        return
    voters = ", ".join(str(each.id) for each in quorum.voters)
    echo(f"{sentence} Voters: {voters}.")


def _directory(text: str) -> bytes | None:
    """Return the directory id of --directory-id; raise InvalidRequest if it is malformed."""
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
