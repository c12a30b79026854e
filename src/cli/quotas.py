"""`quorumlog quotas describe|alter`: client quotas."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig
from ..settings import split_assignments
from ..settings.quantities import parse_quantity, quantity_text
from .options import BootstrapOption, Output, OutputOption
from .output import echo, print_json, print_table

if TYPE_CHECKING:
    from ..clients.admin.configs import ClientQuotas, QuotaEntity

RATES = ("producer_byte_rate", "consumer_byte_rate")
SHARE = "request_percentage"

app = typer.Typer(
    help="Describe and alter quotas of Kafka clients: bytes per second, and the share of a"
    " broker's request time.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

UserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help="User name")]
ClientOption = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Client id")]
DefaultUserOption = Annotated[
    bool, typer.Option("--default-user", help="Default for users without a quota")
]
DefaultClientOption = Annotated[
    bool, typer.Option("--default-client-id", help="Default for client ids without a quota")
]


@app.command(
    "describe",
    short_help="Show quotas",
    epilog="""\b
Examples:
  quorumlog quotas describe                         # all quotas
  quorumlog quotas describe --user alice            # alice, with and without a client id
  quorumlog quotas describe --user alice --strict   # alice without a client id
""",
)
def describe(
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Match the entity exactly; exclude more specific quotas"),
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show all quotas, or those of an entity."""
    from . import settings

    entity = _entity(user, default_user, client_id, default_client_id)
    with settings.open_log(bootstrap=bootstrap) as log:
        found = log.admin.describe_quotas(entity, strict=strict)
    if output is Output.JSON:
        print_json([_json(each) for each in found])
        return
    print_table(
        ("user", "client id", "produce", "fetch", "time"),
        [
            (
                _part_text(each.entity, "user"),
                _part_text(each.entity, "client_id"),
                *(_text(key, each.quotas.get(key)) for key in (*RATES, SHARE)),
            )
            for each in found
        ],
        empty="No quotas are set; clients are not limited.",
    )


@app.command(
    "alter",
    short_help="Set and delete quotas",
    epilog="""\b
Examples:
  quorumlog quotas alter --user alice --set producer_byte_rate=1MiB
  quorumlog quotas alter --default-user --set consumer_byte_rate=10MiB --set request_percentage=25
  quorumlog quotas alter --user alice --client-id etl --set producer_byte_rate=5MiB
  quorumlog quotas alter --user alice --delete producer_byte_rate
""",
)
def alter(
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a quota; repeatable"),
    ] = None,
    deletions: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KEY", help="Delete a quota; repeatable"),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Validate, change nothing")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Set and delete quotas of a user, a client id, or both together. All changes apply, or none.

    producer_byte_rate and consumer_byte_rate are bytes per second on each broker and accept units:
    KiB, MiB, GiB. request_percentage is a share of each broker's request thread. Brokers apply
    changes without a restart.
    """
    from . import settings

    entity = _entity(user, default_user, client_id, default_client_id)
    if not entity:
        raise typer.BadParameter(
            "no entity: give --user, --default-user, --client-id or --default-client-id"
        )
    if not assignments and not deletions:
        raise typer.BadParameter("nothing to change: give --set KEY=VALUE or --delete KEY")
    quotas = _quotas(assignments or [], deletions or [])
    with settings.open_log(bootstrap=bootstrap) as log:
        log.admin.alter_quotas(entity, quotas, delete=deletions or (), validate_only=validate_only)
        now = [] if validate_only else log.admin.describe_quotas(entity, strict=True)
    left = dict(now[0].quotas) if now else {}
    if output is Output.JSON:
        print_json(
            {
                "entity": dict(entity),
                "quotas": None if validate_only else left,
                "validate_only": validate_only,
            }
        )
        return
    if validate_only:
        echo("The change is valid.")
        return
    listed = ", ".join(f"{key}={_text(key, left[key])}" for key in left) or "none"
    echo(f"Quotas of {_entity_text(entity)}: {listed}.")


def _entity(
    user: str | None, default_user: bool, client_id: str | None, default_client_id: bool
) -> "QuotaEntity":
    if (user is not None and default_user) or (client_id is not None and default_client_id):
        raise typer.BadParameter(
            "give a name or the default of a kind, not both: --user or --default-user, --client-id"
            " or --default-client-id"
        )
    entity: dict[str, str | None] = {}
    if user is not None or default_user:
        entity["user"] = user
    if client_id is not None or default_client_id:
        entity["client_id"] = client_id
    return entity


def _quotas(assignments: list[str], deletions: list[str]) -> dict[str, float]:
    quotas: dict[str, float] = {}
    try:
        pairs = split_assignments(assignments, flag="--set")
    except InvalidConfig as error:
        raise typer.BadParameter(error.message) from None
    for key, text, _ in pairs:
        if key in quotas or key in deletions:
            raise typer.BadParameter(f"{key} is given more than once; give each quota once")
        quotas[key] = _value(key, text)
    return quotas


def _value(key: str, text: str) -> float:
    try:
        return parse_quantity(text, "bytes") if key in RATES else float(text)
    except ValueError as error:
        remedy = str(error) if key in RATES else "give a number above 0"
        raise typer.BadParameter(f"{key} is {text!r}; {remedy}") from None


def _part_text(entity: "QuotaEntity", kind: str) -> str | None:
    if kind not in entity:
        return None
    name = entity[kind]
    return "(default)" if name is None else name


def _entity_text(entity: "QuotaEntity") -> str:
    nouns = {"user": "user", "client_id": "client id"}
    return ", ".join(
        f"the default {nouns[kind]}" if name is None else f"{nouns[kind]} {name}"
        for kind, name in entity.items()
    )


def _text(key: str, value: float | None) -> str | None:
    if value is None:
        return None
    if key not in RATES:
        return f"{value:g}%"
    size = quantity_text(int(value), "bytes")
    return f"{size}B/s" if size.isdigit() else f"{size}/s"


def _json(quotas: "ClientQuotas") -> dict[str, Any]:
    return {"entity": dict(quotas.entity), "quotas": dict(quotas.quotas)}
