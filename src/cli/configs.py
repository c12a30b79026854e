"""`quorumlog configs describe|alter`: configs of topics and of the cluster, settings of brokers."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig, UnknownTopicOrPartition
from ..settings import split_assignments
from .completion import topic_names
from .names import unknown_topic
from .options import BootstrapOption, Output, OutputOption
from .output import echo, print_entry, print_json, print_table

if TYPE_CHECKING:
    from ..clients.admin.configs import Config

app = typer.Typer(
    help="Describe and alter configs of topics and of the cluster; describe settings of brokers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


SomeTopic = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="Name of the topic", autocompletion=topic_names),
]
ClusterOption = Annotated[
    bool, typer.Option("--cluster", help="Use the configs of the cluster instead of a topic")
]


@app.command(
    "describe",
    short_help="Show the configs of a topic or of the cluster, or the settings of a broker",
    epilog="""\b
Examples:
  quorumlog configs describe flights           # every config: value, source, default
  quorumlog configs describe flights --docs    # with descriptions and valid values
  quorumlog configs describe --broker 1        # every setting of broker 1 and its source
  quorumlog configs describe --cluster         # configs of the whole cluster
""",
)
def describe(
    topic: SomeTopic = None,
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", min=0, help="Show the settings of this broker"),
    ] = None,
    cluster: ClusterOption = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only values that differ from the default")
    ] = False,
    docs: Annotated[
        bool, typer.Option("--docs", help="Show the description and valid values of each config")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show the value, source and default of topic or cluster configs, or of broker settings."""
    from . import settings

    if (topic is not None) + (broker is not None) + cluster != 1:
        raise typer.BadParameter("give exactly one of TOPIC, --broker and --cluster")
    with settings.open_log(bootstrap=bootstrap) as log:
        try:
            found = log.admin.describe_configs(topic, broker=broker, cluster=cluster)
        except UnknownTopicOrPartition:
            assert topic is not None, "UnknownTopicOrPartition without a topic"
            raise unknown_topic(log, topic) from None
    configs = [config for config in found.values() if not (changed and config.is_default)]
    if output is Output.JSON:
        print_json([config_json(config) for config in configs])
        return
    if docs and configs:
        for config in configs:
            print_entry(
                f"{config.name} = {config.value or '-'} ({_set_by(config)})",
                config.doc,
                f"Valid values: {valid_values_text(config)}; default: {config.default or '-'};"
                f" a change applies: {config.changes}.",
            )
        return
    print_table(
        ("config", "value", "set by", "default", "changes"),
        [
            (
                config.name,
                config.value or "-",
                _set_by(config),
                "" if config.value == config.default else config.default or "-",
                config.changes,
            )
            for config in configs
        ],
        empty="All values are defaults.",
    )


def _set_by(config: "Config") -> str:
    return " ".join(part for part in (config.source, config.place) if part)


@app.command(
    "alter",
    short_help="Change configs of a topic or of the cluster",
    epilog="""\b
Examples:
  quorumlog configs alter flights --set retention.ms=7d --set segment.bytes=256MiB
  quorumlog configs alter flights --delete retention.ms       # reset to the default
  quorumlog configs alter flights --set flush.policy=fsync --validate-only
  quorumlog configs alter --cluster --set replication.throttled.rate=50MiB
""",
)
def alter(
    topic: SomeTopic = None,
    cluster: ClusterOption = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a config; repeatable"),
    ] = None,
    deletions: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="Reset a config to its default; repeatable"),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Validate and print the result, change nothing")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Change configs of a topic or of the cluster. All changes apply, or none.

    Brokers apply changes without a restart. Values accept units: ms, s, min, h, d; B, KiB, MiB,
    GiB, TiB.
    """
    from . import settings

    if (topic is None) != cluster:
        raise typer.BadParameter("give either TOPIC or --cluster")
    if not assignments and not deletions:
        raise typer.BadParameter("nothing to change: give --set KEY=VALUE or --delete KEY")
    changes = _changes(assignments or [], deletions or [])
    with settings.open_log(bootstrap=bootstrap) as log:
        if topic is None:
            now = log.admin.alter_cluster_configs(
                changes, delete=deletions or (), validate_only=validate_only
            )
        else:
            try:
                now = log.admin.alter_configs(
                    topic, changes, delete=deletions or (), validate_only=validate_only
                )
            except UnknownTopicOrPartition:
                raise unknown_topic(log, topic) from None
    if output is Output.JSON:
        print_json({"topic": topic, "configs": now, "validate_only": validate_only})
        return
    listed = ", ".join(f"{name}={value}" for name, value in now.items()) or "none"
    owner = "the cluster" if topic is None else f"topic {topic}"
    are = "would be" if validate_only else "are"
    echo(f"Non-default configs of {owner} {are}: {listed}.")


def _changes(assignments: list[str], deletions: list[str]) -> dict[str, str]:
    changes: dict[str, str] = {}
    try:
        pairs = split_assignments(assignments, flag="--set")
    except InvalidConfig as error:
        raise typer.BadParameter(error.message) from None
    for name, value, _ in pairs:
        if name in changes or name in deletions:
            raise typer.BadParameter(f"{name} is given more than once; give each config once")
        changes[name] = value
    return changes


def valid_values_text(config: "Config") -> str:
    """Return the valid values of a config: "1024..2147483647 bytes", "replicated, fsync"."""
    if config.choices:
        listed = ", ".join(config.choices)
        return f"any of {listed}, or an empty list" if config.type == "any of a list" else listed
    if config.low is None and config.high is None:
        return config.type
    low = "" if config.low is None else f"{config.low:,}"
    high = "" if config.high is None else f"{config.high:,}"
    return f"{low}..{high} {config.unit}".rstrip()


def config_json(config: "Config") -> dict[str, Any]:
    """Return the JSON object of one config."""
    return {
        "name": config.name,
        "value": config.value,
        "default": config.default,
        "source": config.source,
        "place": config.place or None,
        "type": config.type,
        "unit": config.unit or None,
        "low": config.low,
        "high": config.high,
        "choices": list(config.choices),
        "changes": config.changes,
        "doc": config.doc,
    }
