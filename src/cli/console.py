"""`quorumlog console`: the web console."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import EnvironmentUnusable
from ..runtime.child_environment import child_environment
from .options import BootstrapOption, Output, OutputOption
from .output import echo, print_json
from .settings import CONFIG_VARIABLE

if TYPE_CHECKING:
    from ..server.main import Beside
    from ..server.node import ListenerAddresses

EXAMPLES = """\b
Examples:
  quorumlog console
  quorumlog console --bootstrap broker-1:9094,broker-2:9094 --port 8080
  quorumlog console --host 10.0.0.5 --tls-certificate console.pem --tls-key console.key
  quorumlog console --token file:/run/console.token
"""
END_S: Final = 5
PACKAGES: Final = ("jinja2", "starlette", "uvicorn")


HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Address to listen on; one beyond loopback needs TLS  [default: 127.0.0.1]",
        show_default=False,
    ),
]
PortOption = Annotated[
    int,
    typer.Option(
        "--port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port to listen on; 0 picks a free one  [default: 9096]",
        show_default=False,
    ),
]
AllowedHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="Accept this name, or name:port, in URLs besides the address; repeatable",
    ),
]

TokenOption = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="REFERENCE",
        help="file:PATH or env:NAME of a token of OAUTHBEARER; every browser has its rights",
    ),
]
ShareCertificateOption = Annotated[
    bool,
    typer.Option(
        "--share-certificate",
        help="Give every browser the rights of the configured client certificate",
    ),
]


def console(
    bootstrap: BootstrapOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 9096,
    certificate: Annotated[
        str,
        typer.Option(
            "--tls-certificate", metavar="FILE", help="PEM file with the console's certificate"
        ),
    ] = "",
    key: Annotated[
        str, typer.Option("--tls-key", metavar="FILE", help="PEM file with the certificate's key")
    ] = "",
    allowed_host: AllowedHostOption = None,
    token: TokenOption = "",
    share_certificate: ShareCertificateOption = False,
    until_input_ends: Annotated[
        bool,
        typer.Option(
            "--until-input-ends",
            hidden=True,
            help="Stop at the end of the standard input, which `dev --console` holds",
        ),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Serve web pages about a cluster, until Ctrl-C. Prints the URL with the login token.

    The console is an ordinary client. If the cluster requires credentials (security_protocol
    SASL_SSL or SASL_PLAINTEXT), each browser signs in with its own user and password, or with its
    own token (sasl_mechanism OAUTHBEARER); those of the configuration file are not used.
    """
    require_packages()
    from ..console.config import ConsoleConfig
    from ..console.server import run
    from . import settings

    found = settings.load(bootstrap=bootstrap)
    config = ConsoleConfig(
        bootstrap=found.bootstrap,
        tls=found.tls,
        needs_credentials=found.security_protocol.startswith("SASL") and not token,
        mechanism=found.sasl_mechanism,
        token=token,
        shares_certificate=share_certificate,
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        allowed_hosts=tuple(allowed_host or ()),
    )

    def print_url(url: str) -> None:
        if output is Output.JSON:
            print_json({"ready": True, "console": url})
        else:
            echo(f"quorumlog console is ready: {url}")

    run(config, on_ready=print_url, until_input_ends=until_input_ends)


def console_beside(*, as_json: bool) -> "Beside":
    """Return the companion of `dev --console`: a console in a process of its own, which ends with
    this one, however that ends."""

    @contextmanager
    def beside(addresses: "ListenerAddresses", profile: str | None) -> Iterator[None]:
        is_usual = addresses.grpc.endswith(":9094")
        command = [sys.executable, "-m", __package__, "console", "--until-input-ends"]
        command += ["--bootstrap", addresses.grpc, "--port", "9096" if is_usual else "0"]
        command += ["--output", "json"] if as_json else []
        environment = child_environment(os.environ)
        if profile is not None:
            environment[CONFIG_VARIABLE] = profile
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        try:
            yield
        finally:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    return beside


def require_packages() -> None:
    """Raise EnvironmentUnusable if a package of the extra is not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise EnvironmentUnusable(
            f"the console: {', '.join(missing)} not installed; pip install 'quorumlog[console]'"
        )
