"""Generated pages of the documentation: settings (docs/configuration.md), commands (docs/cli.md).

`make docs` writes them; tests compare them with the tables and with the command tree.
"""

from collections.abc import Iterator
from typing import Any

import typer

from ..clients import settings_page as clients
from ..server.settings_page import (
    cluster_table,
    group_table,
    node_table,
    settings_table,
    topic_table,
)
from ..settings.quantities import FACTORS
from .main import app
from .settings import CLIENT_SETTINGS

_HEAD = """\
# Configuration

Generated from the tables of settings in the source (`make docs`).

| settings of | given by | see |
|---|---|---|
| a node | flags, environment, a file | [A node](#a-node) |
| a topic | `topics create --config`, `configs alter`, Python, gRPC | [A topic](#a-topic) |
| the whole cluster | `configs alter --cluster`, Python, gRPC | [The cluster](#the-cluster) |
| a consumer group | Kafka's admin clients | [A consumer group](#a-consumer-group) |
| commands | flags, environment, a file | [The command line](#the-command-line) |
| a Python client | keyword arguments | [A Python client](#a-python-client) |

## Precedence

For nodes and for the command line, **a flag overrides an environment variable, which overrides the
file, which overrides the default.** `quorumlog config show` shows the source of every value:

```text
$ quorumlog config show --config node.toml --set node.rack=r1 --changed
 setting          value            from                    variable
 data.dir         /var/lib/q       file node.toml:1        QUORUMLOG_DATA_DIR
 node.rack        r1               flag --set node.rack    QUORUMLOG_NODE_RACK
 fetch.bytes.max  8388608 (8MiB)   file node.toml:4        QUORUMLOG_FETCH_BYTES_MAX
```

- The **environment variable** of a setting is QUORUMLOG_ and its name in capitals with underscores:
  `data.dir` is `QUORUMLOG_DATA_DIR`. Lists are separated by commas. An empty variable counts as
  unset. A QUORUMLOG_ variable that no setting reads causes a warning with the nearest valid name.
- The **file** is TOML; dotted keys and tables are equivalent.
- An unknown name is an error with the nearest valid name, an invalid value an error with the valid
  ones.
- A number can have a **unit**: {units}. In a file it is then a string:
  `fetch.bytes.max = "8MiB"`. Ambiguous units (MB, m) are errors.

Five more variables: `QUORUMLOG_CONFIG` is the path of the command line's file, `QUORUMLOG_CONTEXT`
the name of its [context](#the-command-line), `QUORUMLOG_LOG` the
level of a node's log on stderr (DEBUG, INFO, WARNING, ERROR; default WARNING), `QUORUMLOG_DEBUG=1`
prints tracebacks of errors, and `QUORUMLOG_BOOTSTRAP` is in the table of the command line.

## A node

`quorumlog server --config node.toml` accepts `--set name=value` for every setting. `quorumlog dev`
has no file: it reads flags, `--set` and the environment, and stores its data in `./quorumlog-data`
by default. A changed setting takes effect after a restart. `quorumlog configs describe --broker ID`
shows the values of a running node and their sources.

```toml
data.dir = "/var/lib/quorumlog"
node.id = 1
listeners.grpc = "0.0.0.0:9094"
advertised.grpc = "broker-1.example.net:9094"
grpc.security.protocol = "SASL_SSL"
ssl.certificate.file = "/etc/quorumlog/broker-1.pem"
ssl.key.file = "/etc/quorumlog/broker-1.key"
fetch.bytes.max = "8MiB"
```

Format the data directory once, with `quorumlog storage format --config node.toml`. A node ignores
`[client]`, `[context]` and `current-context` of the file; they belong to the command line.
"""

_TOPIC = """\
## A topic

Set topic configs when you create a topic, and change them while it is in use. All changes of a call
apply, or none:

```text
quorumlog topics create flights --config segment.bytes=64MiB
quorumlog configs alter flights --set retention.ms=7d --delete segment.bytes
quorumlog configs describe flights --docs
```

In Python these are `log.admin.create_topic(..., configs={...})`, `alter_configs` and
`describe_configs`; gRPC has calls of the same names. Changes apply without a restart. *At once*:
from the next batch on. *Next segment*: for segments created later. *No effect yet*: the value is
validated and stored, but not used.

A change of `flush.policy` from replicated to fsync applies from the next acknowledgement on, which
is sent when its record and all earlier ones are on the disk.
"""

_CLUSTER = """\
## The cluster

Cluster configs are stored in the metadata and apply to every node at once. All changes of a call
apply, or none:

```text
quorumlog configs alter --cluster --set replication.throttled.rate=50MiB
quorumlog configs describe --cluster --docs
```
"""

_GROUP = """\
## A consumer group

Group configs are stored in the metadata, for groups that exist or not. They apply to members of the
consumer protocol (KIP-848). Kafka's admin clients alter and describe them (resource type `GROUP`).
At most 10,000 groups have configs, and their ids have 2,000,000 characters in all.
"""

_CLIENT = """\
## The command line

The file is that of `--config` or `QUORUMLOG_CONFIG`, else `quorumlog.toml` in the current folder,
else `quorumlog/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`. A `quorumlog.toml` of another
user, or that group or others can write, is refused: a profile sends credentials to its brokers. A
file has one *context* for each cluster:

```toml
current-context = "test"

[client]
connect_timeout_ms = "10s"

[context.test]
bootstrap = "broker-1.test.example.net:9094"

[context.prod]
bootstrap = "broker-1.example.net:9094,broker-2.example.net:9094"
security_protocol = "SASL_SSL"
tls_ca_file = "/etc/quorumlog/ca.pem"
sasl_user = "alice"
sasl_password = "file:/home/alice/.config/quorumlog/prod.password"
```

`quorumlog --context prod topics list` uses the context `prod`. Without the flag `QUORUMLOG_CONTEXT`
names the context, else `current-context` of the file. The table `[client]` is the context
`default`. A context has no settings of another one. `quorumlog config show --client` shows the
effective values and their lines in the file.
"""

_PYTHON = """\
## A Python client

Keyword arguments of `quorumlog.connect`, `log.producer` and `log.consumer`, which read neither the
environment nor a file. [clients.md](clients.md) explains them.
"""


def configuration_page() -> str:
    """Return the whole page."""
    units = ", ".join(f"`{unit}`" for factors in FACTORS.values() for unit in factors)
    parts = [
        _HEAD.replace("{units}", units),
        node_table(),
        _TOPIC,
        topic_table(),
        _CLUSTER,
        cluster_table(),
        _GROUP,
        group_table(),
        _CLIENT,
        settings_table(CLIENT_SETTINGS),
        _PYTHON,
    ]
    for title, name in (
        ("Every call", "ClientConfig"),
        ("A producer", "ProducerConfig"),
        ("A consumer", "ConsumerConfig"),
    ):
        parts += [f"### {title}\n", clients.table(name)]
    return "\n".join(parts)


WIDTH = 100  # columns of a help text on the page

_CLI_HEAD = """\
# Command line

Generated from the commands (`make docs`): the output of `--help`. `quorumlog dev` starts a node to
try them on; the [quick start](quickstart.md) shows the most common ones.
"""


def cli_page() -> str:
    """Return the whole page: the root command, then every other one by its full name."""
    root: Any = typer.main.get_command(app)
    sections = [_CLI_HEAD]
    for name, text in _helps(root, _context(root, "quorumlog", None)):
        sections.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(sections)


def _helps(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield (full name, help) of a command and its subcommands, in the order of the tree."""
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield context.command_path, text.strip("\n")
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        subcommand = command.get_command(context, name)
        if not subcommand.hidden:
            yield from _helps(subcommand, _context(subcommand, name, context))


def _context(command: Any, name: str, parent: Any) -> Any:
    """Return the click context that renders a command's help in WIDTH columns."""
    settings = command.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    return command.context_class(command, info_name=name, parent=parent, **settings)
