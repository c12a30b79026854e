"""`quorumlog config show`: effective settings on this machine, and their sources."""

import os
from typing import Annotated, Any

import typer

from ..settings import Resolved, Setting, value_text, variable_of
from ..settings.quantities import quantity_text
from .nodes import ConfigOption, SetOption
from .options import BootstrapOption, Output, OutputOption
from .output import print_entry, print_json, print_table

app = typer.Typer(
    help="Show effective settings on this machine.", no_args_is_help=True, rich_markup_mode=None
)


@app.command(
    "show",
    short_help="Show every setting with its value and source",
    epilog="""\b
Examples:
  quorumlog config show --config node.toml       # settings of a node
  quorumlog config show --set node.id=2          # with a flag of `quorumlog server`
  quorumlog config show --client                 # settings of commands such as `topics list`
  quorumlog config show --changed                # only values that differ from the default
""",
)
def show(
    ctx: typer.Context,
    config: ConfigOption = None,
    assignments: SetOption = None,
    client: Annotated[
        bool,
        typer.Option(
            "--client", help="Show client settings of the command line instead of node settings"
        ),
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only values that differ from the default")
    ] = False,
    docs: Annotated[
        bool, typer.Option("--docs", help="Show the description of each setting")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show every setting with its value and source. Connects to no node.

    A flag overrides an environment variable, which overrides the file, which overrides the default.
    """
    if client and (config or assignments):
        raise typer.BadParameter("--config and --set apply to a node; remove --client")
    if bootstrap is not None and not client:
        raise typer.BadParameter("--bootstrap is a client setting; add --client")
    rows, found = _client(ctx, bootstrap) if client else _node(config, assignments or [])
    shown = [row for row in rows if not (changed and _origin(row, found)["source"] == "default")]
    if output is Output.JSON:
        print_json([_json(row, found) for row in shown])
        return
    table = []
    for row in shown:
        origin = _origin(row, found)
        place = " ".join(part for part in (origin["source"], origin["place"]) if part)
        table.append((row.name, _value_text(row, found), place, variable_of(row.name)))
    if docs and table:
        for row, (name, value, place, variable) in zip(shown, table, strict=True):
            print_entry(f"{name} = {value} ({place}, {variable})", row.doc)
        return
    print_table(("setting", "value", "from", "variable"), table, empty="All values are defaults.")


def _node(config: str | None, assignments: list[str]) -> tuple[list[Setting], Resolved]:
    from ..server import main as server_main
    from ..server.config import node_config, settings
    from .settings import warn_of_unknown_variables

    warn_of_unknown_variables(os.environ)
    found = server_main.resolve_server(config, assignments)
    whole = {"data.dir": "not given yet", **found.values}
    node_config(Resolved(values=whole, origins=found.origins))  # reject what a node rejects
    return list(settings()), found


def _client(ctx: typer.Context, bootstrap: str | None) -> tuple[list[Setting], Resolved]:
    from . import settings

    flags = {} if bootstrap is None else {"bootstrap": bootstrap}
    typed = ctx.get_parameter_source("output")
    if typed is not None and typed.name == "COMMANDLINE":
        flags["output"] = str(ctx.params["output"])
    return list(settings.CLIENT_SETTINGS), settings.resolve_client(flags)


def _origin(row: Setting, found: Resolved) -> dict[str, str | None]:
    origin = found.origins.get(row.name)
    if origin is None:
        return {"source": "missing", "place": None}
    return {"source": origin.kind, "place": origin.place or None}


def _json(row: Setting, found: Resolved) -> dict[str, Any]:
    value = found.values.get(row.name)
    return {
        "name": row.name,
        "value": _json_value(value),
        "default": _json_value(row.default),
        **_origin(row, found),
        "variable": variable_of(row.name),
        "doc": row.doc,
    }


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value_text(value) if isinstance(value, bool) else value


def _value_text(row: Setting, found: Resolved) -> str:
    value = found.values.get(row.name)
    if value is None:
        return "required"
    if isinstance(value, int) and row.unit:
        short = quantity_text(value, row.unit)
        return str(value) if short == str(value) else f"{value} ({short})"
    return value_text(value) or "-"
