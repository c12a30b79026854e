"""`quorumlog features list|update`: feature levels of the cluster."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig
from ..settings import split_assignments
from .options import BootstrapOption, Output, OutputOption
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..clients.admin.configs import Feature

app = typer.Typer(
    help="List and update feature levels. All brokers must support a level before it is enabled.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list", short_help="List feature levels")
def list_features(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List features by name: the level in force, and the levels that all brokers support."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        features = log.admin.describe_features()
    _print(features, output)


@app.command(
    "update",
    short_help="Change feature levels",
    epilog="""\b
Example:
  quorumlog features update metadata.version=1
""",
)
def update(
    levels: Annotated[
        list[str], typer.Argument(metavar="NAME=LEVEL...", help="New level of a feature")
    ],
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Allow a lower level than the current one")
    ] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Validate and print the result, change nothing")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Change feature levels. All changes apply, or none.

    Raise levels after all nodes are upgraded. Older releases cannot read metadata of a higher
    level; lowering a level requires --allow-downgrade.
    """
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
            raise typer.BadParameter(f"level of {name} is {level!r}; give a whole number")
        if name in wanted:
            raise typer.BadParameter(f"{name} is given more than once; give each feature once")
        wanted[name] = int(level)
    return wanted


def _print(features: "dict[str, Feature]", output: Output | None) -> None:
    if output is Output.JSON:
        print_json([_json(feature) for feature in features.values()])
        return
    print_table(
        ("feature", "level", "min level", "max level", "description"),
        [
            (each.name, each.level, each.level_min, each.level_max, each.doc)
            for each in features.values()
        ],
        empty="No features.",
    )


def _json(feature: "Feature") -> dict[str, Any]:
    return {
        "name": feature.name,
        "level": feature.level,
        "level_min": feature.level_min,
        "level_max": feature.level_max,
        "doc": feature.doc,
    }
