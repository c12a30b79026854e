"""`quorumlog doctor`: check a whole cluster, and name what needs attention.

Each check reads the cluster as any client does, and returns diagnoses: a finding with its urgency.
A check that fails, as without a right, is reported and does not hide the others.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from statistics import median_low
from typing import TYPE_CHECKING, Any, Final

import typer

from ..clients.admin.findings import Finding, fenced, not_in_sync, under_min_isr
from ..errors import QuorumlogError
from ..visible_text import shell_word
from .options import BootstrapOption, Output, OutputOption
from .output import count_text, echo, print_json, size_text

if TYPE_CHECKING:
    from ..clients.admin.configs import LogDir
    from ..clients.admin.descriptions import Broker, Cluster
    from ..clients.admin.quorum import Quorum
    from ..clients.admin.transactions import OpenTransaction, TransactionalId
    from ..clients.blocking import Log
    from .settings import ClientSettings

EXIT_WARNING: Final = 3
EXIT_CRITICAL: Final = 4

CALL_TIMEOUT_MS: Final = 5_000  # a broker that does not answer delays the other checks
SHOWN_MAX: Final = 20  # diagnoses of one check in the text output
SILENT_MS: Final = 10_000  # a voter without contact for longer is down
CLOCK_WARNING_MS: Final = 1_000
CLOCK_CRITICAL_MS: Final = 60_000  # producers' timestamps, tokens and certificates begin to fail
FREE_WARNING: Final = 0.15  # of the file system
FREE_CRITICAL: Final = 0.05
DESCRIPTORS_WARNING: Final = 0.8  # of the limit
DESCRIPTORS_CRITICAL: Final = 0.95
CERTIFICATE_WARNING_DAYS: Final = 30
CERTIFICATE_CRITICAL_DAYS: Final = 3
OPEN_WARNING_MS: Final = 15 * 60_000  # the largest timeout of transactions by default
DECIDED_WARNING_MS: Final = 60_000  # markers take milliseconds
GROUPS_MAX: Final = 200  # groups that are described
PLACES_MAX: Final = 10_000  # partitions that are searched for hanging transactions
WATCHED_S: Final = 2.0  # time between two descriptions of a group


class Urgency(StrEnum):
    """The urgency of a diagnosis, the highest first."""

    CRITICAL = "critical"  # records cannot be written or read, or soon will not be
    WARNING = "warning"  # one more failure may be critical
    UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something that needs attention."""

    urgency: Urgency
    finding: Finding


def doctor(
    ctx: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Check brokers, clocks, the metadata quorum, partitions, disks, descriptors, groups,
    transactions and certificates, and say what to do.

    The exit code is 0 if everything is healthy, 3 with warnings, 4 if something is critical, and 1
    if no broker answers.
    """
    from . import settings

    found: dict[str, list[Diagnosis]] = {}
    client = settings.load(bootstrap=bootstrap)
    call_timeout_ms = min(client.call_timeout_ms, CALL_TIMEOUT_MS)
    client = replace(client, call_timeout_ms=call_timeout_ms)
    with settings.connect_with(client) as log:
        cluster = log.admin.describe_cluster()
        for title, check in _checks(client, cluster).items():
            try:
                found[title] = list(check(log))
            except QuorumlogError as error:
                found[title] = [_diagnosis(Urgency.UNCHECKED, title, error.message, "")]
    if output is Output.JSON:
        print_json({title: [_json(each) for each in rows] for title, rows in found.items()})
    else:
        for title, rows in found.items():
            _print(title, rows)
    raise typer.Exit(exit_code(each for rows in found.values() for each in rows))


def exit_code(found: Iterable[Diagnosis]) -> int:
    """Return the exit code of the most urgent one."""
    urgencies = {each.urgency for each in found}
    if Urgency.CRITICAL in urgencies:
        return EXIT_CRITICAL
    return EXIT_WARNING if urgencies else 0


Check = Callable[["Log"], Iterator[Diagnosis]]


def _checks(client: "ClientSettings", cluster: "Cluster") -> dict[str, Check]:
    return {
        "brokers": lambda log: _brokers(log, cluster),
        "clocks": lambda log: clocks(_clocks(log, cluster)),
        "metadata quorum": lambda log: quorum(log.admin.describe_quorum()),
        "partitions": lambda log: _partitions(log, cluster),
        "disks and descriptors": lambda log: _disks(log, cluster),
        "groups": _groups,
        "transactions": _transactions,
        "certificates": lambda log: _certificates(client, cluster),
    }


def _print(title: str, rows: Sequence[Diagnosis]) -> None:
    worst = min((list(Urgency).index(each.urgency) for each in rows), default=None)
    echo(f"{title}: {'ok' if worst is None else list(Urgency)[worst]}")
    for each in rows[:SHOWN_MAX]:
        echo(f"  {each.finding.text}")
    if len(rows) > SHOWN_MAX:
        echo(f"  ... and {len(rows) - SHOWN_MAX:,} more; --output json has all")


def _json(each: Diagnosis) -> dict[str, Any]:
    finding = each.finding
    return {
        "urgency": each.urgency.value,
        "topic": finding.topic,
        "partition": finding.partition,
        "broker": finding.broker,
        "why": finding.why,
        "remedy": finding.instruction or None,
    }


def _diagnosis(
    urgency: Urgency, what: str, why: str, remedy: str, *, broker: int | None = None
) -> Diagnosis:
    return Diagnosis(urgency, Finding(what=what, why=why, remedy=remedy, broker=broker))


# --- brokers and clocks --------------------------------------------------------------------------


def _brokers(log: "Log", cluster: "Cluster") -> Iterator[Diagnosis]:
    """Yield a warning for each fenced or stopping broker."""
    away = [each for each in cluster.brokers if each.fenced or each.stopping]
    for cause in log.admin.explain_fenced(away):
        yield Diagnosis(Urgency.WARNING, fenced(cause))
    if cluster.controller_id is None:
        yield _diagnosis(
            Urgency.CRITICAL,
            "",
            "no active controller is known: topics cannot be created, and no leader is elected",
            "`quorumlog quorum status` shows which voters are missing",
        )


def _clocks(log: "Log", cluster: "Cluster") -> dict[int, int | QuorumlogError]:
    """Return the difference of each broker's clock to this machine's, in ms, or the error."""
    found: dict[int, int | QuorumlogError] = {}
    for broker in cluster.brokers:
        if broker.fenced or broker.stopping:
            continue
        began = time.time_ns()
        try:
            answer = log.admin.describe_cluster(broker=broker.id)
        except QuorumlogError as error:
            found[broker.id] = error
            continue
        found[broker.id] = answer.time_ms - (began + time.time_ns()) // 2_000_000
    return found


def clocks(differences: "Mapping[int, int | QuorumlogError]") -> Iterator[Diagnosis]:
    """Yield the brokers that do not answer, and clocks that differ from that of most brokers; of
    two brokers, from the other one."""
    known = {node: each for node, each in differences.items() if isinstance(each, int)}
    for node, each in differences.items():
        if isinstance(each, QuorumlogError):
            yield _diagnosis(
                Urgency.WARNING,
                "",
                f"broker {node} is not fenced and does not answer this client: {each.message}",
                "Check its address and the network between it and this machine",
                broker=node,
            )
    middle = median_low(known.values()) if known else 0
    for node, each in known.items():
        apart_ms = abs(each - middle)
        if apart_ms < CLOCK_WARNING_MS:
            continue
        is_critical = apart_ms >= CLOCK_CRITICAL_MS
        yield _diagnosis(
            Urgency.CRITICAL if is_critical else Urgency.WARNING,
            "",
            f"the clock of broker {node} is {apart_ms / 1000:,.1f} s"
            f" {'ahead of' if each > middle else 'behind'} that of other brokers: timestamps,"
            " retention, tokens and certificates depend on it",
            "Synchronize the clocks, with chrony for example",
            broker=node,
        )


# --- quorum --------------------------------------------------------------------------------------


def quorum(found: "Quorum") -> Iterator[Diagnosis]:
    """Yield missing voters, and sizes of the quorum that are not recommended."""
    voters = found.voters
    if found.leader is None:
        yield _diagnosis(
            Urgency.CRITICAL,
            "",
            "the metadata quorum has no leader: topics, leaders and ISRs cannot change",
            f"Start the missing ones of the voters {_ids([each.id for each in voters])}",
        )
        return
    silent = [each.id for each in voters if (each.heard_ms_ago or 0) > SILENT_MS]
    silent += [each.id for each in voters if each.heard_ms_ago is None]
    majority = len(voters) // 2 + 1
    spare = len(voters) - len(silent) - majority
    if silent:
        margin = "one more failure stops it" if spare == 0 else f"{spare} more may fail"
        yield _diagnosis(
            Urgency.WARNING,
            "",
            f"{_ids(silent)} of {len(voters)} voters did not fetch for"
            f" {SILENT_MS // 1000} s: {margin}",
            "Start them, or replace a lost one: `quorumlog quorum remove-voter` and `add-voter`",
        )
    if len(voters) == 2:
        yield _diagnosis(
            Urgency.WARNING,
            "",
            "the quorum has 2 voters: it stops if either fails",
            "Add a third voter: `quorumlog quorum add-voter`",
        )


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


# --- partitions and disks ------------------------------------------------------------------------


def _partitions(log: "Log", cluster: "Cluster") -> Iterator[Diagnosis]:
    by_id: dict[int, Broker] = {each.id: each for each in cluster.brokers}
    topics = log.admin.describe_topics()
    places = {(topic.name, each.partition): each for topic in topics for each in topic.partitions}
    incomplete = [place for place, each in places.items() if set(each.isr) < set(each.replicas)]
    described = log.admin.describe_replicas(incomplete) if incomplete else []
    by_leader = {(each.topic, each.partition): each for each in described}
    for (topic, _), each in places.items():
        if each.leader is None or each.is_under_min_isr:
            yield Diagnosis(Urgency.CRITICAL, under_min_isr(topic, each, by_id))
    for place in incomplete:
        each = places[place]
        if each.leader is not None and not each.is_under_min_isr:
            for finding in not_in_sync(place[0], each, by_leader.get(place), by_id):
                yield Diagnosis(Urgency.WARNING, finding)
    for (topic, index), each in places.items():
        if each.recovering:
            yield _diagnosis(
                Urgency.WARNING,
                f"{topic}-{index}",
                f"broker {each.leader} was elected without all acknowledged records and recovers",
                "Records may be lost; compare with the source, or send them again",
            )


def _disks(log: "Log", cluster: "Cluster") -> Iterator[Diagnosis]:
    for broker in cluster.brokers:
        if broker.fenced or broker.stopping:
            continue  # a finding of the check of brokers
        try:
            found = log.admin.describe_log_dirs(broker=broker.id)
        except QuorumlogError as error:
            yield _diagnosis(
                Urgency.UNCHECKED, "", f"broker {broker.id}: {error.message}", "", broker=broker.id
            )
            continue
        for directory in found:
            yield from disk(directory)
            yield from descriptors(directory)


def disk(directory: "LogDir") -> Iterator[Diagnosis]:
    """Yield logs that cannot be used, and a lack of space."""
    for each in directory.logs:
        if each.error is not None:
            yield _diagnosis(
                Urgency.CRITICAL,
                f"{each.topic}-{each.partition}",
                f"broker {directory.broker} cannot use its log: {each.error.message}",
                f"`quorumlog check {shell_word(directory.path)}` on its machine shows the damage",
                broker=directory.broker,
            )
    if directory.capacity_bytes <= 0:
        return
    share = directory.free_bytes / directory.capacity_bytes
    if share < FREE_WARNING:
        yield _diagnosis(
            Urgency.CRITICAL if share < FREE_CRITICAL else Urgency.WARNING,
            "",
            f"broker {directory.broker} has {size_text(directory.free_bytes)} free of"
            f" {size_text(directory.capacity_bytes)} at {directory.path}, {share:.0%}",
            "Shorten retention.ms or retention.bytes of large topics (`quorumlog brokers"
            f" describe {directory.broker}`), or enlarge the disk",
            broker=directory.broker,
        )


def descriptors(directory: "LogDir") -> Iterator[Diagnosis]:
    """Yield a lack of descriptors of the broker with this directory."""
    if not directory.descriptors_max:
        return
    share = directory.open_descriptors / directory.descriptors_max
    if share >= DESCRIPTORS_WARNING:
        yield _diagnosis(
            Urgency.CRITICAL if share >= DESCRIPTORS_CRITICAL else Urgency.WARNING,
            "",
            f"broker {directory.broker} has {directory.open_descriptors:,} of"
            f" {directory.descriptors_max:,} descriptors open: at the limit it accepts no"
            " connections, and changes of files wait",
            "Raise the limit and restart it: LimitNOFILE of the service, or `ulimit -n`",
            broker=directory.broker,
        )


# --- groups and transactions ---------------------------------------------------------------------


def _groups(log: "Log") -> Iterator[Diagnosis]:
    """Yield partitions of groups with a lag that does not fall or an offset beyond the end."""
    from ..clients.admin.lag_findings import lags

    names = [each.name for each in log.admin.list_groups()]
    before = {name: log.admin.describe_group(name) for name in names[:GROUPS_MAX]}
    lagging = {name: each for name, each in before.items() if each.lag or each.holds}
    if lagging:
        time.sleep(WATCHED_S)
    for name, earlier in lagging.items():
        group = log.admin.describe_group(name)
        topics = {each.topic for each in group.offsets}
        partitions = {
            (topic.name, each.partition): each
            for topic in log.admin.describe_topics(topics)
            for each in topic.partitions
        }
        for finding in lags(
            earlier,
            group,
            partitions,
            now_ms=time.time_ns() // 1_000_000,
            between_ms=int(WATCHED_S * 1000),
        ):
            if finding.remedy:
                yield _diagnosis(
                    Urgency.WARNING, f"{name}, {finding.what}", finding.why, finding.remedy
                )
    if len(names) > GROUPS_MAX:
        yield _diagnosis(
            Urgency.UNCHECKED, "", f"{len(names) - GROUPS_MAX} of {len(names)} groups", ""
        )


def _transactions(log: "Log") -> Iterator[Diagnosis]:
    listed = log.admin.list_transactions()
    yield from transactions(listed, now_ms=time.time_ns() // 1_000_000)
    topics = log.admin.describe_topics()
    places = [(each.name, one.partition) for each in topics for one in each.partitions]
    yield from hanging(log.admin.find_hanging_transactions(places[:PLACES_MAX]))
    if len(places) > PLACES_MAX:
        why = f"{len(places) - PLACES_MAX:,} of {len(places):,} partitions for hanging transactions"
        yield _diagnosis(Urgency.UNCHECKED, "", why, "")


def transactions(listed: "Sequence[TransactionalId]", *, now_ms: int) -> Iterator[Diagnosis]:
    """Yield transactions that are open for long, or decided without their markers."""
    for each in listed:
        age_ms = now_ms - each.started_ms if each.started_ms >= 0 else 0
        if each.is_open and age_ms > OPEN_WARNING_MS and each.staged_name is None:
            yield _diagnosis(
                Urgency.WARNING,
                each.name,
                f"its transaction is open for {age_ms // 60_000} min; readers of committed data"
                " wait at its first record",
                f"End it: `quorumlog transactions abort {shell_word(each.name)}`",
            )
        elif each.state.startswith("Prepare") and age_ms > DECIDED_WARNING_MS:
            yield _diagnosis(
                Urgency.WARNING,
                each.name,
                f"its transaction ({each.state}) began {age_ms // 1000} s ago, and its markers are"
                " not written",
                "Check that its partitions have leaders: `quorumlog partitions status`",
            )


def hanging(found: "Sequence[OpenTransaction]") -> Iterator[Diagnosis]:
    """Yield transactions that no coordinator has."""
    for each in found:
        yield _diagnosis(
            Urgency.CRITICAL,
            f"{each.topic}-{each.partition}",
            f"the transaction of producer {each.producer.producer_id} at {each.first_offset} hangs:"
            " no coordinator has it, and readers of committed data wait for ever",
            f"Abort it: `quorumlog transactions find-hanging {each.topic} -p {each.partition}"
            " --abort`",
        )


# --- certificates --------------------------------------------------------------------------------


def _certificates(client: "ClientSettings", cluster: "Cluster") -> Iterator[Diagnosis]:
    """Yield certificates of brokers, and that of the client, that end soon."""
    if client.tls is None:
        return
    import ssl
    from pathlib import Path

    from cryptography import x509

    ends: dict[str, datetime] = {}
    for broker in cluster.brokers:
        if broker.fenced or broker.stopping:
            continue
        host, _, port = broker.grpc_address.rpartition(":")
        try:
            pem = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=5)
        except OSError as error:
            yield _diagnosis(
                Urgency.UNCHECKED, "", f"broker {broker.id}: {error}", "", broker=broker.id
            )
            continue
        certificate = x509.load_pem_x509_certificate(pem.encode())
        ends[f"broker {broker.id}"] = certificate.not_valid_after_utc
    if client.tls_certificate_file:
        content = Path(client.tls_certificate_file).read_bytes()
        own = x509.load_pem_x509_certificate(content)
        ends["this client"] = own.not_valid_after_utc
    yield from certificates(ends, now=datetime.now(UTC))


def certificates(ends: "Mapping[str, datetime]", *, now: datetime) -> Iterator[Diagnosis]:
    """Yield certificates that end soon, by the name of the owner."""
    for owner, end in ends.items():
        days = (end - now).total_seconds() / 86_400
        if days >= CERTIFICATE_WARNING_DAYS:
            continue
        state = f"ends in {count_text(int(days), 'day')}" if days > 0 else "has expired"
        yield _diagnosis(
            Urgency.CRITICAL if days < CERTIFICATE_CRITICAL_DAYS else Urgency.WARNING,
            "",
            f"the certificate of {owner} {state}, at {end:%Y-%m-%d %H:%M} UTC",
            "Renew it: `quorumlog tls renew`; nodes load a new file within a second",
        )
