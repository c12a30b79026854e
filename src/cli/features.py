"""`quorumlog features list|update`: levels that all nodes agree on."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig
from ..settings import split_assignments
from .options import BootstrapOption, Output, OutputOption
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..clients import Feature

app = typer.Typer(
    help="Feature levels: what all nodes must be able to work with before it is used.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_features(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the features by name: the level in force, and what the brokers can work with."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        features = log.admin.describe_features()
    _print(features, output)


@app.command(
    "update",
    short_help="Change levels, once every broker can work with them.",
    epilog="""\b
Example:
  quorumlog features update metadata.version=1
""",
)
def update(
    levels: Annotated[
        list[str], typer.Argument(metavar="NAME=LEVEL...", help="A feature's new level.")
    ],
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="A lower level than now is meant.")
    ] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Say what would be, change nothing.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Change levels: all that are named, or none. After an upgrade of all nodes; there is no way
    back once something new was written, unless --allow-downgrade is taken."""
    from . import settings

    wanted = _wanted(levels)
    with settings.open_log(bootstrap=bootstrap) as log:
        features = log.admin.update_features(
            wanted, allow_downgrade=allow_downgrade, validate_only=validate_only
        )
    _print(features, output)


def _wanted(levels: list[str]) -> dict[str, int]:
    try:
        pairs = split_assignments(levels, flag="NAME=LEVEL")
    except InvalidConfig as error:
        raise typer.BadParameter(error.message) from None
    wanted: dict[str, int] = {}
    for name, level, _ in pairs:
        if not level.isdecimal():
            raise typer.BadParameter(f"the level of {name} is {level!r}; give a whole number")
        if name in wanted:
            raise typer.BadParameter(f"{name} is given twice; give each feature once")
        wanted[name] = int(level)
    return wanted


def _print(features: "dict[str, Feature]", output: Output | None) -> None:
    if output is Output.JSON:
        print_json([_json(feature) for feature in features.values()])
        return
    print_table(
        ("feature", "level", "lowest", "highest", "what it is"),
        [
            (each.name, each.level, each.level_min, each.level_max, each.doc)
            for each in features.values()
        ],
        empty="There are no features.",
    )


def _json(feature: "Feature") -> dict[str, Any]:
    return {
        "name": feature.name,
        "level": feature.level,
        "level_min": feature.level_min,
        "level_max": feature.level_max,
        "doc": feature.doc,
    }
