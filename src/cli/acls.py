"""`quorumlog acls add|list|remove|explain`: access control lists."""

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..clients.admin.acl_operations import OPERATIONS
from ..errors import InvalidConfig, InvalidRequest
from .confirmation import confirmed
from .options import BootstrapOption, Output, OutputOption
from .output import count_text, echo, print_json, print_table

if TYPE_CHECKING:
    from ..clients.admin.security import Acl, AclFilter

EVERY_OPERATION: Final = (*dict.fromkeys(chain(*OPERATIONS.values())), "All")

app = typer.Typer(
    help="Add, list, remove and explain ACLs: rules that allow or deny a principal an operation"
    " on topics, groups, transactional ids or the cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TopicOption = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic")]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="NAME", help="A group")]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--transactional-id", metavar="ID", help="A transactional id or a staged commit's name"
    ),
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster")]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="The name is the beginning of names")
]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="IP address of the client")
]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny; takes precedence over allow")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")]
PrincipalArgument = Annotated[
    str,
    typer.Argument(metavar="PRINCIPAL", help="User:NAME, or User:* for everybody"),
]
OperationsArgument = Annotated[
    list[str], typer.Argument(metavar="OPERATION...", help=", ".join(EVERY_OPERATION))
]


@app.command(
    "add",
    short_help="Add ACLs",
    epilog="""\b
Examples:
  quorumlog acls add User:alice Write --topic orders
  quorumlog acls add User:etl Read --topic sales. --prefixed
  quorumlog acls add User:etl Read --group etl
  quorumlog acls add User:* Read --topic orders --deny --host 10.0.0.7
""",
)
def add(
    principal: PrincipalArgument,
    operations: OperationsArgument,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    host: HostOption = None,
    deny: DenyOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Allow or deny a principal operations on resources. An ACL that exists stays."""
    from ..clients.admin.security import Acl
    from . import settings

    kind, name = _resource(topic, group, transactional_id, cluster)
    _check_operations(operations, kind)
    acls = [
        Acl(
            principal=principal,
            operation=operation,
            resource_type=kind,
            resource=name,
            pattern="Prefixed" if prefixed else "Literal",
            permission="Deny" if deny else "Allow",
            host=host or "*",
        )
        for operation in operations
    ]
    with settings.open_log(bootstrap=bootstrap) as log:
        log.admin.create_acls(acls)
    for acl in acls:
        echo(_text(acl))


@app.command("list", short_help="List ACLs")
def list_acls(
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Of this principal")
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """List ACLs: all, those of a principal, or those that select a resource."""
    from . import settings

    condition = _filter(principal, _maybe_resource(topic, group, transactional_id, cluster))
    with settings.open_log(bootstrap=bootstrap) as log:
        acls = log.admin.describe_acls(condition)
    if output is Output.JSON:
        print_json([_json(each) for each in acls])
        return
    print_table(
        ("principal", "permission", "operation", "resource", "name", "pattern", "host"),
        [
            (
                each.principal,
                each.permission,
                each.operation,
                each.resource_type,
                each.resource,
                each.pattern,
                each.host,
            )
            for each in acls
        ],
        empty="No ACL matches.",
    )


@app.command(
    "remove",
    short_help="Remove ACLs",
    epilog="""\b
Examples:
  quorumlog acls remove User:alice --topic orders      # every operation
  quorumlog acls remove User:alice Write --topic orders
""",
)
def remove(
    principal: PrincipalArgument,
    operations: Annotated[
        list[str] | None, typer.Argument(metavar="[OPERATION...]", help="Default: every operation")
    ] = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Remove a principal's ACLs on a resource, or without a resource all of them. Asks for
    confirmation on a terminal."""
    from ..clients.admin.security import AclFilter
    from . import settings

    resource = _maybe_resource(topic, group, transactional_id, cluster)
    _check_operations(operations or ())
    conditions = [
        AclFilter(
            principal=principal,
            operation=operation,
            resource_type=resource and resource[0],
            resource=resource and resource[1],
            pattern=None if resource is None else "Prefixed" if prefixed else "Literal",
        )
        for operation in operations or (None,)
    ]
    with settings.open_log(bootstrap=bootstrap) as log:
        found = [acl for each in conditions for acl in log.admin.describe_acls(each)]
        if not found:
            raise InvalidConfig(f"no ACL of {principal} matches; see them by `quorumlog acls list`")
        for acl in found:
            echo(_text(acl))
        if not yes and not confirmed(f"Remove {count_text(len(found), 'ACL')}?"):
            raise InvalidRequest("no ACL was removed: not confirmed")
        for each in conditions:
            log.admin.delete_acls(each)
    echo(f"Removed {count_text(len(found), 'ACL')}.")


@app.command(
    "explain",
    short_help="Explain a decision",
    epilog="""\b
Examples:
  quorumlog acls explain User:alice Write --topic orders
  quorumlog acls explain User:etl Read --group etl --host 10.0.0.7
""",
)
def explain(
    principal: PrincipalArgument,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=", ".join(EVERY_OPERATION))],
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    host: HostOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Print whether a principal may do an operation, and the ACL that decides."""
    from . import settings

    kind, name = _resource(topic, group, transactional_id, cluster)
    _check_operations((operation,), kind)
    with settings.open_log(bootstrap=bootstrap) as log:
        decision = log.admin.explain_authorization(
            principal, operation, kind, name, host=host or "*"
        )
    if output is Output.JSON:
        print_json({"is_allowed": decision.is_allowed, "reason": decision.reason})
        return
    answer = "allowed" if decision.is_allowed else "denied"
    echo(f"{principal} {operation} {kind} {name}: {answer}")
    echo(f"  {decision.reason}")


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> tuple[str, str]:
    found = _maybe_resource(topic, group, transactional_id, cluster)
    if found is None:
        raise InvalidConfig("give a resource: --topic, --group, --transactional-id or --cluster")
    return found


def _maybe_resource(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> tuple[str, str] | None:
    """Return the type and the name of the resource; raise InvalidConfig for several."""
    from ..clients.admin.security import CLUSTER

    given = [
        (kind, name)
        for kind, name in (
            ("Topic", topic),
            ("Group", group),
            ("TransactionalId", transactional_id),
            ("Cluster", CLUSTER if cluster else None),
        )
        if name is not None
    ]
    if len(given) > 1:
        raise InvalidConfig("give one of --topic, --group, --transactional-id and --cluster")
    return given[0] if given else None


def _check_operations(operations: Iterable[str], kind: str | None = None) -> None:
    """Raise InvalidConfig for an operation that no resource type, or not this one, supports."""
    supported = EVERY_OPERATION if kind is None else (*OPERATIONS[kind], "All")
    known = {name.lower() for name in supported}
    for operation in operations:
        if operation.replace("-", "").replace("_", "").lower() not in known:
            why = "unknown" if kind is None else f"a {kind} does not support it"
            raise InvalidConfig(
                f"operation {operation!r}: {why}; give one of {', '.join(supported)}"
            )


def _filter(principal: str | None, resource: tuple[str, str] | None) -> "AclFilter":
    from ..clients.admin.security import AclFilter

    if resource is None:
        return AclFilter(principal=principal)
    kind, name = resource
    return AclFilter(principal=principal, resource_type=kind, resource=name, pattern="Match")


def _text(acl: "Acl") -> str:
    prefix = "beginning with " if acl.pattern.lower() == "prefixed" else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return (
        f"{acl.permission} {acl.principal} {acl.operation} {acl.resource_type}"
        f" {prefix}{acl.resource}{host}"
    )


def _json(acl: "Acl") -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": acl.permission,
        "operation": acl.operation,
        "resource_type": acl.resource_type,
        "resource": acl.resource,
        "pattern": acl.pattern,
        "host": acl.host,
    }
