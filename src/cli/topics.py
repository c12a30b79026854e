"""`quorumlog topics create|list|describe|delete`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig, TopicAlreadyExists
from .options import (
    CONNECT_TIMEOUT_MS,
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    TopicArgument,
)
from .output import cell_text, count_text, id_text, print_json, print_table

if TYPE_CHECKING:
    from ..clients import Topic

app = typer.Typer(
    help="Create, list, describe and delete topics.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("create")
def create(
    name: TopicArgument,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="Number of partitions.")
    ] = 1,
    replication: Annotated[
        int | None,
        typer.Option("--replication", "-r", min=1, help="Replicas of each partition."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic config; repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is fine.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.HUMAN,
) -> None:
    """Create a topic; when this returns it can be used."""
    from ..clients.blocking import connect

    configs = parse_configs(config or [])
    with connect(bootstrap, connect_timeout_ms=CONNECT_TIMEOUT_MS) as log:
        try:
            topic = log.admin.create_topic(
                name,
                partitions=partitions,
                replication=replication,
                configs=configs,
                if_not_exists=if_not_exists,
            )
        except TopicAlreadyExists as error:
            raise TopicAlreadyExists(
                f"{error.message} already; --if-not-exists takes it as it is", topic=name
            ) from None
    if output is Output.JSON:
        print_json(topic_json(topic, {}))
    else:
        partitions_text = count_text(len(topic.partitions), "partition")
        replicas_text = count_text(len(topic.partitions[0].replicas), "replica")
        each = "" if len(topic.partitions) == 1 else " each"
        typer.echo(f"Topic {topic.name} has {partitions_text} with {replicas_text}{each}.")


@app.command("list")
def list_topics(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.HUMAN,
) -> None:
    """List all topics by name."""
    from ..clients.blocking import connect

    with connect(bootstrap, connect_timeout_ms=CONNECT_TIMEOUT_MS) as log:
        topics = log.admin.list_topics()
    if output is Output.JSON:
        print_json(
            [
                {
                    "name": topic.name,
                    "id": id_text(topic.topic_id),
                    "partitions": topic.partitions,
                    "replication_factor": topic.replication_factor,
                }
                for topic in topics
            ]
        )
        return
    print_table(
        ("topic", "partitions", "replication"),
        [(topic.name, topic.partitions, topic.replication_factor) for topic in topics],
        empty="There are no topics. Create one: quorumlog topics create NAME --partitions 4",
    )


@app.command("describe")
def describe(
    name: TopicArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.HUMAN,
) -> None:
    """Show a topic's configs and its partitions: leader, replicas, in-sync replicas, end."""
    from ..clients.blocking import connect

    with connect(bootstrap, connect_timeout_ms=CONNECT_TIMEOUT_MS) as log:
        topic = log.admin.describe_topic(name)
        led = [entry.partition for entry in topic.partitions if entry.leader is not None]
        ends = log.list_offsets(name, partitions=led)
    if output is Output.JSON:
        print_json(topic_json(topic, ends))
        return
    configs = cell_text(topic.configs)
    typer.echo(f"Topic {topic.name}, id {id_text(topic.topic_id)}, configs: {configs}")
    print_table(
        ("partition", "leader", "epoch", "replicas", "isr", "high watermark"),
        [
            (
                entry.partition,
                entry.leader,
                entry.leader_epoch,
                entry.replicas,
                entry.isr,
                ends.get(entry.partition),
            )
            for entry in topic.partitions
        ],
        empty="It has no partitions.",
    )


@app.command("delete")
def delete(
    name: TopicArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.HUMAN,
) -> None:
    """Delete a topic with all its records."""
    from ..clients.blocking import connect

    with connect(bootstrap, connect_timeout_ms=CONNECT_TIMEOUT_MS) as log:
        log.admin.delete_topic(name)
    if output is Output.JSON:
        print_json({"deleted": name})
    else:
        typer.echo(f"Topic {name} is deleted.")


def parse_configs(pairs: list[str]) -> dict[str, str]:
    """Return KEY=VALUE pairs as a dict; raises InvalidConfig for anything else."""
    configs = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidConfig(f"--config {pair!r}: give KEY=VALUE, e.g. retention.ms=86400000")
        configs[name.strip()] = value.strip()
    return configs


def topic_json(topic: "Topic", ends: Mapping[int, int]) -> dict[str, Any]:
    """Return the JSON contract of a topic; `ends` are high watermarks by partition,
    null where unknown."""
    return {
        "name": topic.name,
        "id": id_text(topic.topic_id),
        "configs": dict(topic.configs),
        "partitions": [
            {
                "partition": entry.partition,
                "leader": entry.leader,
                "leader_epoch": entry.leader_epoch,
                "replicas": list(entry.replicas),
                "isr": list(entry.isr),
                "elr": list(entry.elr),
                "high_watermark": ends.get(entry.partition),
            }
            for entry in topic.partitions
        ],
    }
