"""The process of a node: settings from flags, environment and file, signals, the ready line.

A failed start prints one line on stderr and exits with a non-zero code. SIGTERM and SIGINT stop the
node in order; a second one ends the process at once. This module is not simulated.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from ..errors import InvalidConfig, Overloaded, QuorumlogError
from ..metadata.scram_credentials import ScramCredential, ScramKey, check_user
from ..runtime import Runtime
from ..runtime.memory import keep_freed_memory, short_collections, use_huge_pages
from ..runtime.private_files import check_owner
from ..runtime.real import NO_ROUTES, run
from ..settings import (
    DEFAULT,
    Resolved,
    SettingSource,
    flag_source,
    read_settings,
    split_assignments,
)
from ..storage import DirectoryMeta
from .addresses import ANY_HOST, id_text
from .config import (
    NodeConfig,
    node_config,
    node_environment,
    placed_address,
    resolve_node,
    settings,
    toml_source,
)
from .directory_format import initial_voters, read_meta
from .json_log import TEXT_FORMAT, write_json
from .node import ListenerAddresses, Node, format_directory, is_formatted

if TYPE_CHECKING:
    from .secure_defaults import SecurityFolder

NO_USERS: Final[Mapping[str, str]] = MappingProxyType({})
PRIVATE_UMASK: Final = 0o027
"""Files of a node are not readable by users outside of its group: they hold records and keys."""
ADMINISTRATOR: Final = "admin"  # of `dev --secure`
AUDIT_FILE: Final = "audit.log"
DEV_DATA_DIR = "quorumlog-data"
DEV_HTTP_PORT = 9095
DEV_KAFKA_PORT = 9092
LOG_LEVEL_VARIABLE = "QUORUMLOG_LOG"
LOG_LEVELS = ("WARNING", "DEBUG", "INFO", "ERROR")  # the first one is the default
HUGE_PAGES_AFTER_S = (3.0, 60.0)
"""Pauses after which the heap is moved into huge pages: after the start, and once it has grown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """The command line of `quorumlog dev`; None: not given."""

    data_dir: str | None = None
    host: str | None = None
    grpc_port: int | None = None  # 0 picks a free port
    kafka_port: int | None = None  # 0 picks a free port
    controller_port: int | None = None  # 0 picks a free port
    http_port: int | None = None  # 0 picks a free port
    secure: bool = False  # TLS, and an administrator with a password
    assignments: Sequence[str] = ()  # "name=value" of --set


Beside: TypeAlias = Callable[[ListenerAddresses, str | None], AbstractContextManager[object]]
"""A companion of a node that serves: takes its addresses and the clients' profile, if any."""


def _nothing_beside(
    addresses: ListenerAddresses, profile: str | None
) -> AbstractContextManager[object]:
    return nullcontext()


def say(error: QuorumlogError) -> None:
    """Print an error on stderr in one line."""
    print(f"quorumlog: {error}", file=sys.stderr)


def dev(
    options: DevOptions,
    *,
    as_json: bool = False,
    tell: Callable[[QuorumlogError], None] = say,
    beside: Beside = _nothing_beside,
) -> int:
    """Run one node with both roles until a signal stops it; format its directory at the first
    start.

    Return the exit code of the process: 0 after an orderly stop. `tell` receives the error that
    prevents the node from running. `beside` is entered once the node serves and left before it
    stops.
    """

    def work() -> None:
        found, folder = resolve_dev(options), None
        check_owner(node_config(found).data_dir)
        if options.secure:
            found, folder = secured(found)
        _serve(found, format_new=True, as_json=as_json, security=folder, beside=beside)

    return _guarded(work, tell)


def serve(
    config_path: str | None,
    *,
    assignments: Sequence[str] = (),
    as_json: bool = False,
    tell: Callable[[QuorumlogError], None] = say,
    format_new: bool = False,
    secure: bool = False,
    password_file: str = "",
    routes: Mapping[str, str] = NO_ROUTES,
) -> int:
    """Run the node of a configuration file, the environment and --set until a signal stops it.
    Return the exit code. `tell` is as in `dev`.

    `format_new` formats an unformatted directory, as `dev` does; `secure` is as in `DevOptions`;
    `password_file` has the password of the administrator in a directory that is formatted; `routes`
    are those of `RealNetwork`.
    """

    def work() -> None:
        found, folder = resolve_server(config_path, assignments), None
        if secure:
            found, folder = secured(found)
        _serve(
            found,
            format_new=format_new,
            as_json=as_json,
            routes=routes,
            security=folder,
            password_file=password_file,
        )

    return _guarded(work, tell)


def load_config(path: str | None, assignments: Sequence[str] = ()) -> NodeConfig:
    """Return the validated configuration of a node; raises InvalidConfig naming the source of an
    invalid value."""
    return node_config(resolve_server(path, assignments))


def resolve_server(path: str | None, assignments: Sequence[str]) -> Resolved:
    """Return every setting of `quorumlog server` with its source; raises InvalidConfig."""
    flags = split_assignments(assignments, flag="--set")
    sources = [flag_source(tuple(settings()), flags), node_environment(os.environ)]
    if path is not None:
        sources.append(toml_source(read_settings(path), path=path))
    return resolve_node(sources)


def resolve_dev(options: DevOptions) -> Resolved:
    """Return every setting of `quorumlog dev` with its source; raises InvalidConfig."""
    below = [
        node_environment(os.environ),
        SettingSource(values={"data.dir": (DEV_DATA_DIR, DEFAULT)}),
    ]
    flags = split_assignments(options.assignments, flag="--set")
    if options.data_dir is not None:
        flags.append(("data.dir", options.data_dir, "--data-dir"))

    def listen(name: str, port: int | None, flag: str, beneath: Resolved) -> None:
        if port is None and options.host is None:
            return
        host, usual = placed_address(beneath, name)
        text = f"{options.host or host}:{usual if port is None else port}"
        flags.append((name, text, flag if options.host is None else "--host"))

    listen("listeners.grpc", options.grpc_port, "--grpc-port", resolve_node(below))
    table = tuple(settings())
    found = resolve_node([flag_source(table, flags), *below])
    host, port = placed_address(found, "listeners.grpc")
    if host in ANY_HOST and not found["advertised.grpc"]:
        raise InvalidConfig(
            f"{host}: every interface cannot be advertised to clients; give the address of one"
            " interface, or the advertised address: --set advertised.grpc=HOST:PORT"
        )
    below.append(_dev_defaults(host, port))
    listen(
        "listeners.controller",
        options.controller_port,
        "--controller-port",
        resolve_node(below),
    )
    if options.http_port is not None:
        flags.append(("listeners.http", f"{host}:{options.http_port}", "--http-port"))
    if options.kafka_port is not None:
        flags.append(("listeners.kafka", f"{host}:{options.kafka_port}", "--kafka-port"))
    found = resolve_node([flag_source(table, flags), *below])
    values = {**found.values, "data.dir": os.path.abspath(found["data.dir"] or DEV_DATA_DIR)}
    return Resolved(values=values, origins=found.origins)


def secured(found: Resolved) -> "tuple[Resolved, SecurityFolder]":
    """Return settings with TLS, passwords and ACLs where they do not say otherwise, and the folder
    with the certificate and the administrator's password, which is created if needed. Raises
    InvalidConfig."""
    from .secure_defaults import FOLDER_SUFFIX, open_security_folder  # needed by this alone

    config = node_config(found)
    cluster_id = config.cluster_id or _cluster_id_of(config) or id_text(os.urandom(16))
    host, _ = placed_address(found, "listeners.grpc")
    folder = open_security_folder(Path(f"{config.data_dir.rstrip('/')}{FOLDER_SUFFIX}"))
    folder.issue_node(cluster_id, config.node_id, config.roles, [host])
    values, origins = {**found.values}, {**found.origins}
    own = {"cluster.id": cluster_id, "audit.log.file": str(folder.path / AUDIT_FILE)}
    for name, value in {**own, **folder.settings(config.node_id)}.items():
        if name not in origins or origins[name] == DEFAULT:
            values[name], origins[name] = value, DEFAULT
    kafka = found.values["listeners.kafka"]
    assert isinstance(kafka, tuple), f"listeners.kafka is {kafka}"
    values["listeners.kafka"] = tuple(
        text if "://" in text else f"SASL_SSL://{text}" for text in kafka
    )
    return Resolved(values=values, origins=origins), folder


def _cluster_id_of(config: NodeConfig) -> str:
    """Return the cluster of a formatted data directory, "" if it is not formatted."""

    async def main(runtime: Runtime) -> str:
        meta = await read_meta(runtime, config)
        return "" if meta is None else meta.cluster_id

    return run(main, name="look")


def _dev_defaults(host: str, grpc_port: int) -> SettingSource:
    """Return the defaults of `quorumlog dev`: the other listeners on their usual ports, or on free
    ports if the gRPC port is not the usual one, so that several nodes run side by side. New groups
    do not wait for more members."""
    usual = {row.name: str(row.default) for row in settings()}
    is_usual = usual["listeners.grpc"].endswith(f":{grpc_port}")
    http, kafka = (DEV_HTTP_PORT, DEV_KAFKA_PORT) if is_usual else (0, 0)
    controller = usual["listeners.controller"]
    values: dict[str, object] = {
        "listeners.controller": controller if is_usual else f"{controller.rpartition(':')[0]}:0",
        "listeners.http": f"{host}:{http}",
        "listeners.kafka": (f"{host}:{kafka}",),
        "group.initial.rebalance.delay.ms": 0,
    }
    return SettingSource(values={name: (value, DEFAULT) for name, value in values.items()})


def format_storage(
    config: NodeConfig,
    *,
    cluster_id: str = "",
    standalone: bool = False,
    no_initial_voters: bool = False,
    users: Mapping[str, str] = NO_USERS,
) -> DirectoryMeta:
    """Format the data directory of a configuration, for a new cluster unless one is named.

    `users` has passwords by name; they exist when the cluster has started for the first time.

    The quorum is the result of `directory_format.initial_voters` for the configuration and the two
    flags. Formatting is idempotent. Raises InvalidRequest for contradictions, DirectoryMismatch if
    the directory belongs to another cluster, node or directory id, DirectoryUnusable if it cannot
    be written.
    """
    forming = initial_voters(config, standalone=standalone, no_initial_voters=no_initial_voters)
    _check_data_dir(config)
    os.umask(os.umask(PRIVATE_UMASK) | PRIVATE_UMASK)

    async def main(runtime: Runtime) -> DirectoryMeta:
        meta = await format_directory(
            runtime, config, cluster_id=cluster_id or config.cluster_id, forming=forming
        )
        await _store_users(runtime, config, users)
        return meta

    return run(main, name="format")


async def _store_users(runtime: Runtime, config: NodeConfig, users: Mapping[str, str]) -> None:
    from .initial_credentials import initial_credentials, store_credentials  # needed once

    entropy = runtime.entropy.stream("initial-credentials")
    found: dict[ScramKey, ScramCredential] = {}
    for user, password in users.items():
        check_user(user)
        found.update(initial_credentials(entropy, user, password))
    if found:
        await store_credentials(runtime, config.data_dir, found)


def is_formatted_storage(config: NodeConfig) -> bool:
    """Return True if the data directory of a configuration has been formatted."""

    async def main(runtime: Runtime) -> bool:
        return is_formatted(runtime, config)

    return run(main, name="look")


def ready_line(addresses: ListenerAddresses, *, as_json: bool, profile: str | None = None) -> str:
    """Return the line with the addresses of a started node, and the file with which clients
    connect."""
    row = {
        "ready": True,
        "kafka": addresses.kafka,
        "grpc": addresses.grpc or None,
        "controller": addresses.controller,
        "http": addresses.http,
        "data_dir": addresses.data_dir,
        "pid": os.getpid(),
    }
    if profile is not None:
        row["profile"] = profile
    if as_json:
        return json.dumps(row)
    places = [
        f"{name} {row[name]}" for name in ("grpc", "kafka", "controller", "http") if row[name]
    ]
    line = f"quorumlog is ready: {', '.join(places)}; data in {addresses.data_dir}"
    return line if profile is None else f"{line}; QUORUMLOG_CONFIG={profile}"


def _guarded(work: Callable[[], None], tell: Callable[[QuorumlogError], None]) -> int:
    """Run to the end; report an error, and return it as exit code 1."""
    try:
        logging.basicConfig(stream=sys.stderr, level=_log_level(), format=TEXT_FORMAT)
        work()
    except QuorumlogError as error:
        tell(error)
        return 1
    return 0


def _log_level() -> str:
    level = os.environ.get(LOG_LEVEL_VARIABLE, "").upper() or LOG_LEVELS[0]
    if level not in LOG_LEVELS:
        raise InvalidConfig(f"{LOG_LEVEL_VARIABLE}: {level!r}; give {', '.join(LOG_LEVELS)}")
    return level


def _serve(
    found: Resolved,
    *,
    format_new: bool,
    as_json: bool,
    routes: Mapping[str, str] = NO_ROUTES,
    security: "SecurityFolder | None" = None,
    password_file: str = "",
    beside: Beside = _nothing_beside,
) -> None:
    config = node_config(found)
    _check_data_dir(config)
    if security is not None:
        password_file = str(security.password_file)
    if config.log_format == "json":
        write_json()

    async def main(runtime: Runtime) -> None:
        stop = _Stop()
        with _stopping_on_signals(stop):
            if format_new and not is_formatted(runtime, config):
                await format_directory(
                    runtime, config, cluster_id=config.cluster_id, forming=initial_voters(config)
                )
                if password_file and config.is_controller:
                    from ..runtime.tls import secret_of  # ssl is needed with passwords only

                    password = secret_of(f"file:{password_file}")
                    await _store_users(runtime, config, {ADMINISTRATOR: password})
            async with AsyncExitStack() as stack:
                node = Node(runtime, config, origins=found.origins, with_process=True)
                if await stop.comes_first(stack.enter_async_context(node)):
                    return
                profile = None
                if security is not None:
                    security.write_profiles(grpc=node.addresses.grpc, kafka=node.addresses.kafka)
                    profile = str(security.client_profile)
                print(ready_line(node.addresses, as_json=as_json, profile=profile), flush=True)
                stack.enter_context(beside(node.addresses, profile))
                async with runtime.tasks.scope("memory") as scope:
                    scope.spawn(_use_huge_pages(runtime), name="huge_pages")
                    await stop.wait()
                    scope.cancel()

    os.umask(os.umask(PRIVATE_UMASK) | PRIVATE_UMASK)
    keep_freed_memory()
    with short_collections():
        run(main, name=f"node-{config.node_id}", routes=routes)


def _check_data_dir(config: NodeConfig) -> None:
    """Raise DirectoryUnusable if the data directory belongs to another user, except root. Root
    may use any: a container mounts folders of other users, and a service has a user of its own."""
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        check_owner(config.data_dir)


async def _use_huge_pages(runtime: Runtime) -> None:
    """Move the heap into huge pages after some pauses."""
    for pause_s in HUGE_PAGES_AFTER_S:
        await asyncio.sleep(pause_s)
        with suppress(Overloaded):  # requests need the lane; the node runs without huge pages
            await runtime.tasks.offload("cpu", use_huge_pages)


class _Stop(asyncio.Event):
    """A request to stop the node; setting it also cancels a start in progress."""

    def __init__(self) -> None:
        super().__init__()
        self._starting: asyncio.Task[object] | None = None

    def set(self) -> None:
        """Request the stop."""
        super().set()
        if self._starting is not None:
            self._starting.cancel()

    async def comes_first(self, start: Awaitable[object]) -> bool:
        """Await the start; return True if the stop was requested before its end."""
        self._starting = task = asyncio.current_task()
        assert task is not None, "outside of a task"
        try:
            await start
        except asyncio.CancelledError:
            if not self.is_set():
                raise
            task.uncancel()
        finally:
            self._starting = None
        return self.is_set()


@contextmanager
def _stopping_on_signals(stop: _Stop) -> Iterator[None]:
    """Stop at the first SIGTERM or SIGINT; a second one ends the process at once. The previous
    signal handlers are restored afterwards."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, handler: Callable[[int, FrameType | None], object] | int) -> None:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(number)
        signal.signal(number, handler)

    def asked() -> None:
        stop.set()
        for number in before:
            handle(number, signal.SIG_DFL)

    for number in before:
        try:
            loop.add_signal_handler(number, asked)
        except NotImplementedError:  # Windows' loops; the node's next timer wakes the loop
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(asked))
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: not set from Python, cannot be restored
                handle(number, handler)
