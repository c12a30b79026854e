"""`quorumlog tls init-ca|issue|renew|rotate|inspect`: certificates of small clusters."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidConfig
from .options import Output, OutputOption
from .output import echo, print_json, print_table

if TYPE_CHECKING:
    from ..server.certificates import CertificateFacts, CertificatePaths

app = typer.Typer(
    help="Create certificates for nodes and clients, signed by an authority in a folder.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the authority")]


class RotationStep(StrEnum):
    """A step of the change of an authority."""

    TRUST_BOTH = "trust-both"
    RENEW = "renew"
    TRUST_NEW = "trust-new"


NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the files: NAME.pem and NAME.key")
]


@app.command(
    "init-ca",
    short_help="Create an authority",
    epilog="""\b
Example:
  quorumlog tls init-ca certificates     # certificates/ca.pem and ca.key
""",
)
def init_ca(
    folder: FolderArgument,
    name: Annotated[str, typer.Option("--name", help="Common name")] = "quorumlog authority",
    days: Annotated[int | None, typer.Option("--days", help="Days of validity")] = None,
) -> None:
    """Create an authority: ca.pem for every node and client, and ca.key, which signs certificates.

    Keep ca.key away from the nodes: a stranger with it can act as any node or user.
    """
    from ..server import certificates

    paths = certificates.create_authority(
        folder, name=name, days=certificates.AUTHORITY_DAYS if days is None else days
    )
    _print_paths(paths)


@app.command(
    "issue",
    short_help="Issue a certificate",
    epilog="""\b
Examples:
  quorumlog tls issue certificates broker1 --host broker1.example --host 10.0.0.1
  quorumlog tls issue certificates node1 --host 10.0.0.1 --node 1 --cluster-id $CLUSTER
  quorumlog tls issue certificates alice --user alice      # for a client
""",
)
def issue(
    folder: FolderArgument,
    file_name: NameArgument,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="DNS name or IP address of a server"),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Common name; default: NAME")
    ] = None,
    uris: Annotated[
        list[str] | None, typer.Option("--uri", metavar="URI", help="URI in the certificate")
    ] = None,
    node: Annotated[
        int | None,
        typer.Option("--node", metavar="ID", min=0, help="Node id, for traffic between nodes"),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="Cluster of the node")
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="Role of the node  [default: both]"),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", help="Days of validity")] = None,
) -> None:
    """Issue a certificate for a client, or with --host for a node. The user of a client is
    "User:CN=NAME", unless ssl.principal.mapping.rules shortens it.

    With --node and --cluster-id the node also presents it to the other nodes (internal.security).
    """
    from ..runtime.node_identity import ROLES, node_uri
    from ..server import certificates

    uris = list(uris or ())
    if (node is None) != (cluster_id is None):
        raise InvalidConfig("--node and --cluster-id: give both, or none for a client")
    if node is not None and cluster_id is not None:
        for role in roles or ():
            if role not in ROLES:
                raise InvalidConfig(f"--role: {role!r}; give {' or '.join(ROLES)}")
        uris.append(node_uri(cluster_id, node, tuple(roles or ROLES)))
    paths = certificates.issue(
        folder,
        file_name,
        name=user or file_name,
        hosts=hosts or (),
        uris=uris,
        days=certificates.CERTIFICATE_DAYS if days is None else days,
    )
    _print_paths(paths)


@app.command(
    "renew",
    short_help="Renew a certificate",
    epilog="""\b
Example:
  quorumlog tls renew certificates broker1
""",
)
def renew(
    folder: FolderArgument,
    file_name: NameArgument,
    days: Annotated[int | None, typer.Option("--days", help="Days of validity")] = None,
) -> None:
    """Issue a certificate again, with a new key, for the same name and hosts. A running node loads
    it within seconds."""
    from ..server import certificates

    paths = certificates.renew(
        folder, file_name, days=certificates.CERTIFICATE_DAYS if days is None else days
    )
    _print_paths(paths)


@app.command(
    "rotate",
    short_help="Change the authority, in three steps",
    epilog="""\b
Examples:
  quorumlog tls rotate certificates trust-both   # then restart Kafka clients
  quorumlog tls rotate certificates renew
  quorumlog tls rotate certificates trust-new
""",
)
def rotate(
    folder: FolderArgument,
    step: Annotated[
        RotationStep, typer.Argument(metavar="STEP", help="trust-both, renew or trust-new")
    ],
) -> None:
    """Change the authority of a folder, in three steps. Before the next step, every node and client
    must have loaded the files of the last one; a node loads them within seconds.

    trust-both adds a new authority to ca.pem. renew signs with it, and renews every certificate in
    the folder for the same name, hosts and node. trust-new removes the old authority from ca.pem.
    """
    from ..server import certificates

    match step:
        case RotationStep.TRUST_BOTH:
            changed = [certificates.trust_both(folder)]
        case RotationStep.RENEW:
            changed = certificates.renew_all(folder)
        case RotationStep.TRUST_NEW:
            changed = [certificates.trust_new(folder)]
    for paths in changed:
        _print_paths(paths)


@app.command(
    "inspect",
    short_help="Show certificates",
    epilog="""\b
Example:
  quorumlog tls inspect certificates/*.pem
""",
)
def inspect(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="PEM files")],
    output: OutputOption = None,
) -> None:
    """Show the names and the validity of certificates. Fails if one has expired."""
    from ..server import certificates

    now = datetime.now(UTC)
    found = [(path, facts) for path in files for facts in certificates.inspect(path)]
    if output is Output.JSON:
        print_json([_json(path, facts, now) for path, facts in found])
    else:
        print_table(
            ("file", "subject", "issuer", "hosts and URIs", "days left"),
            [
                (
                    path.name,
                    facts.subject,
                    facts.issuer,
                    ", ".join((*facts.hosts, *facts.uris)) or None,
                    facts.days_left(now),
                )
                for path, facts in found
            ],
            empty="The files have no certificates.",
        )
    expired = [path for path, facts in found if facts.ends <= now]
    if expired:
        raise InvalidConfig(f"{expired[0]}: a certificate has expired; renew it")


def _print_paths(paths: "CertificatePaths") -> None:
    echo(str(paths.certificate))
    echo(str(paths.key))


def _json(path: Path, facts: "CertificateFacts", now: datetime) -> dict[str, Any]:
    return {
        "file": str(path),
        "subject": facts.subject,
        "issuer": facts.issuer,
        "hosts": list(facts.hosts),
        "uris": list(facts.uris),
        "begins": facts.begins.isoformat(),
        "ends": facts.ends.isoformat(),
        "days_left": facts.days_left(now),
        "is_authority": facts.is_authority,
        "fingerprint": facts.fingerprint,
    }
