"""`quorumlog brokers list|describe|unregister` and `quorumlog cluster describe`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidRequest
from .confirmation import confirmed
from .options import BootstrapOption, Output, OutputOption
from .output import echo, print_json, print_table, size_text

if TYPE_CHECKING:
    from ..clients.admin.configs import LogDir
    from ..clients.admin.descriptions import Broker, Cluster

brokers_app = typer.Typer(
    help="List, describe and unregister brokers.", no_args_is_help=True, rich_markup_mode=None
)


def describe_cluster(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """Show the cluster id, the active controller, and the number of brokers and topics."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        cluster = log.admin.describe_cluster()
        topics = log.admin.list_topics(internal=True)
    fenced = [broker.id for broker in cluster.brokers if broker.fenced]
    row = {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "brokers": [_broker_json(broker, cluster) for broker in cluster.brokers],
        "topics": len(topics),
        "partitions": sum(topic.partitions for topic in topics),
    }
    if output is Output.JSON:
        print_json(row)
        return
    controller = "none" if cluster.controller_id is None else cluster.controller_id
    echo(f"cluster     {cluster.cluster_id}")
    echo(f"controller  {controller}")
    note = f" ({', '.join(map(str, fenced))} fenced)" if fenced else ""
    echo(f"brokers     {len(cluster.brokers)}{note}")
    echo(f"topics      {len(topics):,} with {row['partitions']:,} partitions")


@brokers_app.command("list", short_help="List registered brokers")
def list_brokers(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List registered brokers by id."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        cluster = log.admin.describe_cluster()
    rows = [_broker_json(broker, cluster) for broker in cluster.brokers]
    if output is Output.JSON:
        print_json(rows)
        return
    print_table(
        ("broker", "address", "kafka", "rack", "state", "controller"),
        [
            (
                row["id"],
                row["grpc"],
                _listeners_text(broker),
                row["rack"] or "-",
                row["state"],
                "yes" if row["is_controller"] else "",
            )
            for row, broker in zip(rows, cluster.brokers, strict=True)
        ],
        empty="No brokers are registered.",
    )


@brokers_app.command("describe", short_help="Show a broker and the logs on its disks")
def describe_broker(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="Node id of the broker")],
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show a broker's address, state, and the size of each log on its disks.

    `quorumlog configs describe --broker ID` shows its settings.
    """
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        cluster = log.admin.describe_cluster()
        found = next((each for each in cluster.brokers if each.id == broker), None)
        if found is None:
            ids = ", ".join(str(each.id) for each in cluster.brokers) or "none"
            raise InvalidRequest(f"broker {broker} is not registered; registered brokers: {ids}")
        directories = log.admin.describe_log_dirs(broker=broker)
    row = _broker_json(found, cluster)
    if output is Output.JSON:
        print_json({**row, "directories": [_directory_json(each) for each in directories]})
        return
    echo(f"Broker {broker} at {row['grpc']}, {row['state']}")
    if found.kafka_listeners:
        echo(f"Kafka listeners: {_listeners_text(found)}")
    for directory in directories:
        free, capacity = size_text(directory.free_bytes), size_text(directory.capacity_bytes)
        echo(
            f"{directory.path}: {size_text(directory.size_bytes)} of records,"
            f" {free} of {capacity} free"
        )
        print_table(
            ("topic", "partition", "bytes", "log start", "log end", "error"),
            [
                (
                    each.topic,
                    each.partition,
                    each.size_bytes,
                    each.log_start_offset,
                    each.log_end_offset,
                    "" if each.error is None else each.error.message,
                )
                for each in directory.logs
            ],
            empty="No logs.",
        )


@brokers_app.command("unregister", short_help="Remove a broker that does not come back")
def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", min=0, help="Node id of the broker")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Remove the registration of a broker that does not come back. The broker must be down.

    Its replicas count no more, but stay assigned until they are moved, preferably first:
    `quorumlog partitions reassign --drain ID`. Asks for confirmation on a terminal.
    """
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        if not yes and not confirmed(
            f"Unregister broker {broker} and give up all records on its disks?"
        ):
            raise InvalidRequest(f"broker {broker} was not unregistered: not confirmed")
        log.admin.unregister_broker(broker)
    if output is Output.JSON:
        print_json({"unregistered": broker})
    else:
        echo(f"Broker {broker} is unregistered.")


def _broker_json(broker: "Broker", cluster: "Cluster") -> dict[str, Any]:
    return {
        "id": broker.id,
        "grpc": broker.grpc_address,
        "kafka": dict(broker.kafka_listeners),
        "rack": broker.rack or None,
        "state": _state(broker),
        "broker_epoch": broker.broker_epoch,
        "is_controller": broker.id == cluster.controller_id,
    }


def _listeners_text(broker: "Broker") -> str:
    """Return the Kafka listeners in one line. "*" stands for every interface; names are included if
    there are several listeners."""
    found = {
        name: f"*{address}" if address.startswith(":") else address
        for name, address in broker.kafka_listeners.items()
    }
    if len(found) > 1:
        return ", ".join(f"{name}://{place}" for name, place in found.items())
    return next(iter(found.values()), "-")


def _state(broker: "Broker") -> str:
    if broker.stopping:
        return "stopped" if broker.fenced else "stopping"
    return "fenced" if broker.fenced else "active"


def _directory_json(directory: "LogDir") -> dict[str, Any]:
    return {
        "path": directory.path,
        "size_bytes": directory.size_bytes,
        "capacity_bytes": directory.capacity_bytes,
        "free_bytes": directory.free_bytes,
        "logs": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "size_bytes": each.size_bytes,
                "log_start_offset": each.log_start_offset,
                "log_end_offset": each.log_end_offset,
                "error": None if each.error is None else each.error.message,
            }
            for each in directory.logs
        ],
    }
