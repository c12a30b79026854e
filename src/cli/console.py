"""`quorumlog console`: the web console."""

from importlib.util import find_spec
from typing import Annotated

import typer

from ..errors import EnvironmentUnusable
from .options import BootstrapOption

EXAMPLES = """\b
Examples:
  quorumlog console
  quorumlog console --bootstrap broker-1:9094,broker-2:9094 --port 8080
  quorumlog console --host 10.0.0.5 --tls-certificate console.pem --tls-key console.key
"""
PACKAGES = ("jinja2", "starlette", "uvicorn")


def console(
    bootstrap: BootstrapOption = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Address to listen on; one beyond loopback needs TLS  [default: 127.0.0.1]",
            show_default=False,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Port to listen on; 0 picks a free one  [default: 9096]",
            show_default=False,
        ),
    ] = 9096,
    certificate: Annotated[
        str,
        typer.Option(
            "--tls-certificate", metavar="FILE", help="PEM file with the console's certificate"
        ),
    ] = "",
    key: Annotated[
        str, typer.Option("--tls-key", metavar="FILE", help="PEM file with the certificate's key")
    ] = "",
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Accept this name, or name:port, in URLs besides the address; repeatable",
        ),
    ] = None,
) -> None:
    """Serve web pages about a cluster, until Ctrl-C. Prints the URL with the login token.

    The console is an ordinary client. If the cluster requires a user and a password
    (security_protocol SASL_SSL or SASL_PLAINTEXT), each browser signs in with its own; those of the
    configuration file are not used.
    """
    require_packages()
    from ..console.config import ConsoleConfig
    from ..console.server import run
    from . import settings

    found = settings.load(bootstrap=bootstrap)
    config = ConsoleConfig(
        bootstrap=found.bootstrap,
        tls=found.tls,
        needs_credentials=found.security_protocol.startswith("SASL"),
        mechanism=found.sasl_mechanism if "SCRAM" in found.sasl_mechanism else "SCRAM-SHA-256",
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        allowed_hosts=tuple(allowed_host or ()),
    )
    run(config, on_ready=lambda url: typer.echo(f"quorumlog console is ready: {url}"))


def require_packages() -> None:
    """Raise EnvironmentUnusable if a package of the extra is not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise EnvironmentUnusable(
            f"the console: {', '.join(missing)} not installed; pip install 'quorumlog[console]'"
        )
