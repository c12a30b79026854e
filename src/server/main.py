"""The process around a node: settings from a file or from `dev`'s options, signals, the ready line.

What goes wrong before the node serves is one sentence on stderr and a non-zero exit code. SIGTERM
and SIGINT stop it in order; a second one ends the process at once. Nothing of this is simulated.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..errors import InvalidConfig, QuorumlogError
from ..runtime import Runtime
from ..runtime.real import run
from ..storage import DirectoryMeta
from .config import ANY_HOST, NodeConfig, parse_toml
from .node import Node, NodeAddresses, format_directory, is_formatted

DEV_DATA_DIR = "quorumlog-data"
LOG_LEVEL_VARIABLE = "QUORUMLOG_LOG"  # DEBUG, INFO, WARNING (default), ERROR

_M_TRIM_THRESHOLD = -1  # mallopt's numbers
_M_MMAP_THRESHOLD = -3
_MMAP_BYTES_MIN = 32 << 20  # larger blocks are mapped on their own; the most that glibc takes
_FREE_BYTES_MAX = 64 << 20  # free memory above this goes back to the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What `quorumlog dev` may be told; everything has a default."""

    data_dir: str = DEV_DATA_DIR
    host: str = "127.0.0.1"
    grpc_port: int = 9094  # 0 picks a free one
    controller_port: int = 9093  # 0 picks a free one


def dev(options: DevOptions, *, as_json: bool = False) -> int:
    """Run one node with both roles until it is told to stop; format its folder on first use.

    Returns the process's exit code: 0 after an orderly stop.
    """
    return _guarded(lambda: _serve(_dev_config(options), format_new=True, as_json=as_json))


def serve(config_path: str, *, as_json: bool = False) -> int:
    """Run the node of a configuration file until it is told to stop; returns the exit code."""
    return _guarded(lambda: _serve(load_config(config_path), format_new=False, as_json=as_json))


def load_config(path: str) -> NodeConfig:
    """Read and check a configuration file; raises InvalidConfig naming it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} cannot be read: {error}; name a TOML file") from None
    return parse_toml(text, source=path)


def format_storage(config: NodeConfig, *, cluster_id: str = "") -> DirectoryMeta:
    """Format the data directory of a configuration, for a new cluster unless one is named.

    Repeating it changes nothing. Raises DirectoryMismatch when it belongs to another cluster or
    node, DirectoryUnusable when it cannot be written.
    """

    async def main(runtime: Runtime) -> DirectoryMeta:
        return await format_directory(runtime, config, cluster_id=cluster_id or config.cluster_id)

    return run(main, name="format")


def ready_line(addresses: NodeAddresses, *, as_json: bool) -> str:
    """Return the line that says where a node can be reached."""
    row = {
        "ready": True,
        "kafka": addresses.kafka,
        "grpc": addresses.grpc,
        "controller": addresses.controller,
        "http": addresses.http,
        "data_dir": addresses.data_dir,
        "pid": os.getpid(),
    }
    if as_json:
        return json.dumps(row)
    places = [f"{name} {row[name]}" for name in ("grpc", "controller") if row[name]]
    return f"quorumlog is ready: {', '.join(places)}; data in {addresses.data_dir}"


def _dev_config(options: DevOptions) -> NodeConfig:
    if options.host in ANY_HOST:
        raise InvalidConfig(
            f"{options.host} is every interface and none that clients could be told; name the "
            "address of one, or run `quorumlog server` with advertised.grpc"
        )
    return NodeConfig(
        data_dir=os.path.abspath(options.data_dir),
        grpc_listener=f"{options.host}:{options.grpc_port}",
        controller_listener=f"{options.host}:{options.controller_port}",
    )


def _guarded(work: Callable[[], None]) -> int:
    """Run to the end; a refusal becomes one sentence on stderr and exit code 1."""
    level = os.environ.get(LOG_LEVEL_VARIABLE, "WARNING").upper()
    logging.basicConfig(
        stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        work()
    except QuorumlogError as error:
        print(f"quorumlog: {error}", file=sys.stderr)
        return 1
    return 0


def _keep_freed_memory() -> None:
    """Have malloc reuse what a batch leaves behind, up to a bound, in place of returning it.

    Buffers of a batch's size come and go with every request. By glibc's defaults each one is a
    fresh mapping whose pages the kernel zeroes again: measured, 250 to 900 page faults and 1 to 2
    ms of system time for each MiB that passes. Elsewhere than on glibc this does nothing.
    """
    import ctypes  # 3 ms, needed nowhere else

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError: Windows wants a name
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES_MIN)
    mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_MAX)


def _serve(config: NodeConfig, *, format_new: bool, as_json: bool) -> None:
    async def main(runtime: Runtime) -> None:
        stop = asyncio.Event()
        _stop_on_signals(stop)
        if format_new and not is_formatted(runtime, config):
            await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            print(ready_line(node.addresses, as_json=as_json), flush=True)
            await stop.wait()

    _keep_freed_memory()
    run(main, name=f"node-{config.node_id}")


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def asked() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, asked)
        except NotImplementedError:  # Windows' loops; the next timer of the node wakes this one
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(asked))
