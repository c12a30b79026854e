"""Client settings of the command line: a flag, the environment, a file, or the default.

The file is $QUORUMLOG_CONFIG, else quorumlog.toml in the current folder, which no other user may be
able to write, else config.toml in the user's configuration folder ($XDG_CONFIG_HOME/quorumlog,
~/.config/quorumlog). A context of it has the settings: the table [context.NAME] of
$QUORUMLOG_CONTEXT, else of the key current-context, else the table [client], the context `default`.
The flags --config and --context set the two variables. A command passes the values of its flags,
None for flags that were not given:

    with settings.open_log(bootstrap=bootstrap) as log: ...
    if settings.load(output=output).output == "json": ...
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidConfig
from ..runtime.private_files import foreign_owner, is_writable_by_others
from ..settings import (
    Resolved,
    SettingSource,
    declared,
    environment_source,
    file_source,
    flag_source,
    read_settings,
    resolve,
    setting,
    toml_tree,
    unknown_variables,
    variable_of,
)
from .failures import DEBUG_VARIABLE
from .output import echo

if TYPE_CHECKING:
    from ..clients.blocking import Log
    from ..clients.credentials import SCRAM, TLS, Token

CONFIG_VARIABLE: Final = "QUORUMLOG_CONFIG"
CONTEXT_VARIABLE: Final = "QUORUMLOG_CONTEXT"
LOG_LEVEL_VARIABLE: Final = "QUORUMLOG_LOG"
LOOP_VARIABLE: Final = "QUORUMLOG_LOOP"
PLAIN_CODEC_VARIABLE: Final = "QUORUMLOG_PLAIN_CODEC"
FILE_NAME: Final = "quorumlog.toml"
USER_FILE_NAME: Final = "config.toml"  # in the user's configuration folder
TABLE: Final = "client"
CONTEXTS: Final = "context"
CURRENT: Final = "current-context"
DEFAULT_CONTEXT: Final = "default"  # the name of the table [client]
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings of one command."""

    bootstrap: str = setting(
        "bootstrap",
        "127.0.0.1:9094",
        "gRPC address of a broker, host:port, or a comma-separated list.",
        field_name="bootstrap.servers",
        changes="next command",
    )
    output: str = setting(
        "output",
        "human",
        "Output format of commands: human (tables and sentences) or json.",
        choices=("human", "json"),
        changes="next command",
    )
    connect_timeout_ms: int = setting(
        "connect_timeout_ms",
        3_000,
        "Timeout of the first connection. A longer one waits for a slow start, a shorter one"
        " reports a wrong address sooner.",
        unit="ms",
        low=1,
        high=_DAY_MS,
        changes="next command",
    )
    request_timeout_ms: int = setting(
        "request_timeout_ms",
        30_000,
        "Timeout of one attempt of a call, after which it is retried.",
        unit="ms",
        low=1,
        high=_DAY_MS,
        field_name="request.timeout.ms",
        changes="next command",
    )
    call_timeout_ms: int = setting(
        "call_timeout_ms",
        60_000,
        "Timeout of a call, including all retries.",
        unit="ms",
        low=1,
        high=_DAY_MS,
        field_name="default.api.timeout.ms",
        changes="next command",
    )
    security_protocol: str = setting(
        "security_protocol",
        "PLAINTEXT",
        "PLAINTEXT, SSL for TLS, or SASL_PLAINTEXT or SASL_SSL for a password or a token.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        field_name="security.protocol",
        changes="next command",
    )
    tls_ca_file: str = setting(
        "tls_ca_file",
        "",
        "PEM file with the authorities of the brokers' certificates; empty: those of the system.",
        field_name="ssl.truststore.location",
        changes="next command",
    )
    tls_certificate_file: str = setting(
        "tls_certificate_file",
        "",
        "PEM file with the client's certificate, for brokers that require one.",
        field_name="ssl.keystore.certificate.chain",
        changes="next command",
    )
    tls_key_file: str = setting(
        "tls_key_file",
        "",
        "PEM file with the key of the client's certificate.",
        field_name="ssl.keystore.key",
        changes="next command",
    )
    sasl_mechanism: str = setting(
        "sasl_mechanism",
        "SCRAM-SHA-256",
        "SCRAM-SHA-256 or SCRAM-SHA-512 for a password, OAUTHBEARER for a token.",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        field_name="sasl.mechanism",
        changes="next command",
    )
    sasl_user: str = setting(
        "sasl_user",
        "",
        "Name of the user of a password.",
        field_name="sasl.jaas.config",
        changes="next command",
    )
    sasl_password: str = setting(
        "sasl_password",
        "",
        "The password, or the token of OAUTHBEARER, as a reference: file:PATH or env:NAME.",
        field_name="sasl.jaas.config",
        changes="next command",
    )

    @property
    def tls(self) -> "TLS | None":
        """The encryption of connections; None: none."""
        from ..clients.credentials import TLS

        if not self.security_protocol.endswith("SSL"):
            return None
        return TLS(
            ca=self.tls_ca_file, certificate=self.tls_certificate_file, key=self.tls_key_file
        )

    @property
    def credentials(self) -> "SCRAM | Token | None":
        """The credentials of calls; None: none. Raise InvalidConfig if they are incomplete."""
        from ..clients.credentials import SCRAM, Token

        if not self.security_protocol.startswith("SASL"):
            return None
        if not self.sasl_password.startswith(("file:", "env:")):
            raise InvalidConfig(
                "sasl_password: give file:PATH or env:NAME, the place of the password or token"
            )
        if self.sasl_mechanism == "OAUTHBEARER":
            return Token(self.sasl_password)
        if not self.sasl_user:
            raise InvalidConfig("sasl_user: empty; give the name of the user")
        return SCRAM(
            user=self.sasl_user, password=self.sasl_password, mechanism=self.sasl_mechanism
        )


CLIENT_SETTINGS: Final = tuple(row for row, _ in declared(ClientSettings).values())


def load(
    *,
    bootstrap: str | None = None,
    output: str | None = None,
    connect_timeout_ms: str | int | None = None,
    request_timeout_ms: str | int | None = None,
    call_timeout_ms: str | int | None = None,
    warn: bool = True,
) -> ClientSettings:
    """Return the settings of a command with these flags, None for a flag that was not given. If
    `warn`, print a warning for unknown variables. Raise InvalidConfig, with the source of the
    invalid value."""
    given = {
        "bootstrap": bootstrap,
        "output": output,
        "connect_timeout_ms": connect_timeout_ms,
        "request_timeout_ms": request_timeout_ms,
        "call_timeout_ms": call_timeout_ms,
    }
    found = resolve_client({name: str(v) for name, v in given.items() if v is not None}, warn=warn)
    return ClientSettings(**found.values)


def open_log(
    *,
    bootstrap: str | None = None,
    connect_timeout_ms: str | int | None = None,
    request_timeout_ms: str | int | None = None,
    call_timeout_ms: str | int | None = None,
) -> "Log":
    """Connect with the settings of these flags; see `load`."""
    return connect_with(
        load(
            bootstrap=bootstrap,
            connect_timeout_ms=connect_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            call_timeout_ms=call_timeout_ms,
        )
    )


def load_source(bootstrap: str, path: str | None, *, flag: str) -> ClientSettings:
    """Return the settings for the source cluster of a mirror: those of the file at `path`, which
    `flag` names, and defaults for all others. Raise InvalidConfig."""
    if path is None:
        return ClientSettings(bootstrap=bootstrap)
    text = read_settings(path, named_by=flag)
    table = _table_of_context(toml_tree(text, path=path), "", path)
    found = resolve(CLIENT_SETTINGS, (file_source(CLIENT_SETTINGS, text, path=path, table=table),))
    return ClientSettings(**{**found.values, "bootstrap": bootstrap})


def connect_with(found: ClientSettings) -> "Log":
    """Connect with these settings."""
    from ..clients.blocking import connect

    return connect(
        found.bootstrap,
        connect_timeout_ms=found.connect_timeout_ms,
        request_timeout_ms=found.request_timeout_ms,
        call_timeout_ms=found.call_timeout_ms,
        tls=found.tls,
        credentials=found.credentials,
    )


def resolve_client(
    flags: Mapping[str, str],
    *,
    environment: Mapping[str, str] | None = None,
    warn: bool = True,
) -> Resolved:
    """Return every client setting with its source; `flags` are texts by setting name."""
    environment = os.environ if environment is None else environment
    if warn:
        warn_of_unknown_variables(environment)
    typed = [(name, text, flag_of(name)) for name, text in flags.items()]
    return resolve(
        CLIENT_SETTINGS,
        (
            flag_source(CLIENT_SETTINGS, typed),
            environment_source(CLIENT_SETTINGS, environment),
            _file(environment),
        ),
    )


def flag_of(name: str) -> str:
    """Return the flag of a client setting, --connect-timeout-ms for connect_timeout_ms."""
    return "--" + name.replace("_", "-")


def config_file(environment: Mapping[str, str]) -> str | None:
    """Return the path of the configuration file, None if there is none."""
    named = environment.get(CONFIG_VARIABLE)
    if named:
        return named
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    if os.path.isfile(FILE_NAME):
        return FILE_NAME
    path = os.path.join(home, "quorumlog", USER_FILE_NAME)
    return path if os.path.isfile(path) else None


def _check_owner(path: str, descriptor: int) -> None:
    """Raise InvalidConfig for an open file that another user can write. It could send the caller's
    credentials, and any file of the caller, to a foreign broker."""
    status = os.fstat(descriptor)
    is_own = foreign_owner(status, os.lstat(path)) is None
    if is_own and not is_writable_by_others(status):
        return
    shown = os.path.abspath(path)
    remedy = f"run: chmod go-w {shown}" if is_own else "use a file of your own"
    raise InvalidConfig(
        f"{shown}: another user can write this configuration file; {remedy}, or name it with"
        f" --config or {CONFIG_VARIABLE} if you trust that user"
    )


COMMAND_VARIABLES: Final = frozenset(
    (
        CONFIG_VARIABLE,
        CONTEXT_VARIABLE,
        DEBUG_VARIABLE,
        LOG_LEVEL_VARIABLE,
        LOOP_VARIABLE,
        PLAIN_CODEC_VARIABLE,
        *(variable_of(row.name) for row in CLIENT_SETTINGS),
    )
)
"""The environment variables of every command."""


def known_variables() -> set[str]:
    """Return every environment variable that quorumlog reads."""
    from ..server.config import settings as node_settings

    return {*COMMAND_VARIABLES, *(variable_of(row.name) for row in node_settings())}


def warn_of_unknown_variables(environment: Mapping[str, str]) -> None:
    """Print a warning on stderr for each QUORUMLOG_ variable that no setting reads."""
    if all(name in COMMAND_VARIABLES for name in environment if name.startswith("QUORUMLOG_")):
        return  # the common case, without importing a node's settings
    for warning in unknown_variables(environment, known_variables()):
        echo(f"quorumlog: warning: {warning}", err=True)


def _file(environment: Mapping[str, str]) -> SettingSource:
    path, context = config_file(environment), environment.get(CONTEXT_VARIABLE, "")
    if path is None:
        if context not in ("", DEFAULT_CONTEXT):
            raise InvalidConfig(
                f"context {context!r}: there is no configuration file; name it with --config or"
                f" {CONFIG_VARIABLE}"
            )
        return SettingSource(values={})
    if environment.get(CONFIG_VARIABLE):
        text = read_settings(path, named_by=CONFIG_VARIABLE)
    else:
        text = read_settings(path, check=_check_owner if path == FILE_NAME else None)
    table = _table_of_context(toml_tree(text, path=path), context, path)
    return file_source(CLIENT_SETTINGS, text, path=path, table=table)


def _table_of_context(tree: Mapping[str, Any], context: str, path: str) -> Sequence[str]:
    """Return the keys of a context's table, of the current context's without a name. Raise
    InvalidConfig for an unknown context."""
    contexts, current = tree.get(CONTEXTS, {}), tree.get(CURRENT, "")
    if not isinstance(contexts, dict) or DEFAULT_CONTEXT in contexts:
        raise InvalidConfig(
            f"{path}: {CONTEXTS} is not a table of contexts; give [{CONTEXTS}.NAME], and [{TABLE}]"
            f" for the context {DEFAULT_CONTEXT}"
        )
    if not isinstance(current, str):
        raise InvalidConfig(f"{path}: {CURRENT} is {current!r}; give the name of a context")
    name = context or current or DEFAULT_CONTEXT
    if name == DEFAULT_CONTEXT:
        return (TABLE,)
    if name not in contexts:
        known = ", ".join((DEFAULT_CONTEXT, *sorted(contexts)))
        raise InvalidConfig(f"context {name!r}: not in {path}; its contexts are {known}")
    return (CONTEXTS, name)
