"""The page of settings (docs/configuration.md), rendered from the typed tables.

Pure text: `make docs` writes the page, a test holds the page against the tables.
"""

from ...clients import reference as clients
from ...server.reference import cluster_table, node_table, settings_table, topic_table
from ...settings.quantities import FACTORS
from ..settings import CLIENT_SETTINGS

_HEAD = """\
# Configuration

Generated from the tables that check the settings (`make docs`); edit those.

| for | given by | see |
|---|---|---|
| a node | flags, environment, a file | [A node](#a-node) |
| a topic | `topics create --config`, `configs alter`, Python, gRPC | [A topic](#a-topic) |
| the whole cluster | `configs alter --cluster`, Python, gRPC | [The cluster](#the-cluster) |
| commands | flags, environment, a file | [The command line](#the-command-line) |
| a Python client | keyword arguments | [A Python client](#a-python-client) |

## Where a value comes from

One order holds for nodes and for the command line: **a flag wins over an environment variable, that
over a file, and the file over the default.** `quorumlog config show` says of every value where it
comes from:

```text
$ quorumlog config show --config node.toml --set node.rack=r1 --changed
 setting          value            from                    variable
 data.dir         /var/lib/q       file node.toml:1        QUORUMLOG_DATA_DIR
 node.rack        r1               flag --set node.rack    QUORUMLOG_NODE_RACK
 fetch.bytes.max  8388608 (8MiB)   file node.toml:4        QUORUMLOG_FETCH_BYTES_MAX
```

- A setting's **variable** is QUORUMLOG_ and its name in capitals with underscores: `data.dir` is
  `QUORUMLOG_DATA_DIR`. A list is separated by commas. An empty variable counts as not given. A
  QUORUMLOG_ variable that nothing reads is told on stderr, with the nearest right name.
- A **file** is TOML; dotted keys and tables are the same thing.
- An unknown name is refused with the nearest right one, a bad value with what it may be.
- A number may have a **unit**, where it means one number and nothing is rounded: {units}.
  In a file it is then text: `fetch.bytes.max = "8MiB"`. What has two readings (MB, m) is refused.

Four more variables: `QUORUMLOG_CONFIG` names the command line's file, `QUORUMLOG_LOG` is the level
of what a node writes to stderr (DEBUG, INFO, WARNING, ERROR; default WARNING), `QUORUMLOG_DEBUG=1`
shows tracebacks of errors, `QUORUMLOG_BOOTSTRAP` is in the table of the command line.

## A node

`quorumlog server --config node.toml`, with `--set name=value` for any setting. `quorumlog dev`
needs no file: it reads flags and the environment, keeps its data in `./quorumlog-data` unless it is
told another folder, and takes `--set` too. A setting changes with a restart. What a running node
has, and from where: `quorumlog configs describe --broker ID`.

```toml
data.dir = "/var/lib/quorumlog"
node.id = 1
listeners.grpc = "0.0.0.0:9094"
advertised.grpc = "broker-1.example.net:9094"
fetch.bytes.max = "8MiB"
```

The directory is formatted once, with `quorumlog storage format --config node.toml`. The table
`[client]` of the file is the command line's and is left alone here.
"""

_TOPIC = """\
## A topic

Given when the topic is created, changed while it is in use, all of a change or nothing:

```text
quorumlog topics create flights --config segment.bytes=64MiB
quorumlog configs alter flights --set retention.ms=7d --delete segment.bytes
quorumlog configs describe flights --docs
```

In Python `log.admin.create_topic(..., configs={...})`, `alter_configs`, `describe_configs`; in gRPC
the calls of the same names. Running logs take a change without a restart. *At once*: from the next
batch on. *Next segment*: segments begun later have it. *No effect yet*: the value is checked and
kept, and nothing acts on it.

A change of `flush.policy` from replicated to fsync holds from the first acknowledgement after it:
that one comes when the record and everything before it is on the disk. What was acknowledged before
the change reaches the disk with it.
"""

_CLUSTER = """\
## The cluster

Kept in the metadata, equal on every node and in force at once, all of a change or nothing:

```text
quorumlog configs alter --cluster --set replication.throttled.rate=50MiB
quorumlog configs describe --cluster --docs
```
"""

_CLIENT = """\
## The command line

The file is the one that `QUORUMLOG_CONFIG` names, else `quorumlog.toml` in the current folder, else
`quorumlog/quorumlog.toml` in `$XDG_CONFIG_HOME` or `~/.config`. Its table is `[client]`; other
tables are left alone. `quorumlog config show --client` tells what comes of it.

```toml
[client]
bootstrap = "broker-1.example.net:9094,broker-2.example.net:9094"
connect_timeout_ms = "10s"
```
"""

_PYTHON = """\
## A Python client

Keyword arguments of `quorumlog.connect`, `log.producer` and `log.consumer`. They read neither the
environment nor a file: a program says what it wants. More in [clients.md](clients.md).
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
