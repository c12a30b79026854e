"""Collectors of a node's parts, a function for each part; docstrings state the cost of a scrape."""

from collections.abc import Iterator

from ...broker.groups.shell import GroupCoordinator
from ...broker.quotas import ClientQuotaManager
from ...broker.shell.metrics import ReplicationMetrics
from ...broker.shell.replica_manager import ReplicaManager
from ...broker.transactions.requests import AbortReason
from ...broker.transactions.shell import TransactionCoordinator
from ...frontends.grpc import LogService
from ...frontends.kafka import KafkaServer
from ...ids import NO_NODE, NodeId
from ...metadata import MetadataImage
from ...metadata.shell import MetadataPublisher, MetadataStateMachine
from ...metrics import Scrape
from ...metrics import table as rows
from ...raftlog.shell import RaftNode
from ...storage.shell.data_directory import DataDirectory
from .partition_tally import COUNTED_A_STEP, PartitionTally


def collect_log(scrape: Scrape, log: LogService, replicas: ReplicaManager) -> None:
    """Write produce and fetch metrics; visits the partitions with transactions."""
    made, reads = replicas.writer.figures, replicas.reader
    read = reads.figures
    scrape.put(rows.PRODUCED_BYTES, made.bytes)
    scrape.put(rows.PRODUCED_RECORDS, made.records)
    scrape.put(rows.PRODUCE_FAILURES, made.failures)
    for acks, took_ms in made.took_ms.items():
        scrape.put_histogram(rows.PRODUCE_SECONDS, took_ms, acks.value)
    scrape.put(rows.PRODUCES_WAITING, log.produces_waiting + made.waiting)
    for outcome, count in replicas.markers.counts.items():
        scrape.put(rows.TRANSACTION_MARKERS, count, outcome)
    scrape.put(rows.TORN_COMMITS, replicas.markers.torn_commits)
    transactions, lag = replicas.replication.figures.open_transactions()
    scrape.put(rows.PARTITION_TRANSACTIONS, transactions)
    scrape.put(rows.STABLE_OFFSET_LAG, lag)
    scrape.put(rows.FETCHED_BYTES, read.fetched_bytes)
    scrape.put_histogram(rows.FETCH_SECONDS, read.at_once_ms, "no")
    scrape.put_histogram(rows.FETCH_SECONDS, read.waited_ms, "yes")
    scrape.put(rows.FETCHES_WAITING, reads.waiting)
    scrape.put(rows.SUBSCRIPTIONS, log.subscriptions)


def collect_groups(scrape: Scrape, groups: GroupCoordinator) -> None:
    """Write the metrics of groups; visits every group and its members."""
    census, figures = groups.census(), groups.figures
    by_state = {"Empty": 0, "Stable": 0, **census.groups_by_state}
    for state, count in sorted(by_state.items()):
        scrape.put(rows.GROUPS, count, state)
    scrape.put(rows.GROUP_MEMBERS, census.members)
    scrape.put(rows.GROUP_OFFSETS, census.offsets)
    scrape.put(rows.GROUP_PARTITIONS, census.partitions_served, "serving")
    scrape.put(rows.GROUP_PARTITIONS, census.partitions_read, "loading")
    scrape.put(rows.GROUP_COMMITS, figures.commits)
    scrape.put(rows.GROUP_GENERATIONS, figures.generations)
    scrape.put(rows.GROUP_LOADS, figures.loads)
    scrape.put(rows.GROUP_LOAD_SECONDS, figures.load_ms_total / 1000)
    scrape.put(rows.GROUP_RELOADS, figures.reloads)


def collect_transactions(scrape: Scrape, transactions: TransactionCoordinator) -> None:
    """Write the metrics of transactions; visits every open transaction."""
    census, figures = transactions.census(), transactions.figures
    scrape.put(rows.TRANSACTIONAL_IDS, census.ids)
    scrape.put(rows.TRANSACTIONS_OPEN, census.open)
    scrape.put(rows.TRANSACTIONS_OLDEST, census.oldest_ms / 1000)
    scrape.put(rows.STAGED_NAMES, census.staged_names)
    scrape.put(rows.STAGED_ATTEMPTS, census.attempts_open, "open")
    scrape.put(rows.STAGED_ATTEMPTS, census.attempts_sealed, "sealed")
    scrape.put(rows.STAGED_ATTEMPTS, census.attempts_completing, "completing")
    scrape.put(rows.STAGED_OLDEST, census.attempts_oldest_ms / 1000)
    scrape.put(rows.TRANSACTION_COMMITS, figures.commits)
    for reason in AbortReason:
        scrape.put(rows.TRANSACTION_ABORTS, figures.aborts.get(reason.value, 0), reason.value)
    scrape.put(rows.TRANSACTION_PARTITIONS, census.partitions_served, "serving")
    scrape.put(rows.TRANSACTION_PARTITIONS, census.partitions_read, "loading")
    scrape.put(rows.TRANSACTION_LOADS, figures.loads)
    scrape.put(rows.TRANSACTION_LOAD_SECONDS, figures.load_ms_total / 1000)
    scrape.put(rows.TRANSACTION_RELOADS, figures.reloads)
    scrape.put(rows.MARKERS_PENDING, census.markers)
    scrape.put(rows.MARKERS_OLDEST, census.markers_oldest_ms / 1000)
    scrape.put(rows.MARKER_REQUESTS, figures.marker_requests)
    scrape.put(rows.MARKERS_REPEATED, census.markers_repeated)


def collect_quotas(scrape: Scrape, throttling: ClientQuotaManager) -> None:
    """Write the metrics of client quotas; constant cost."""
    for key, throttled in throttling.throttled.items():
        scrape.put(rows.QUOTA_THROTTLES, throttled.count, key)
        scrape.put(rows.QUOTA_WAIT, throttled.ms / 1000, key)
    scrape.put(rows.QUOTA_CLIENTS, throttling.client_count)


def collect_led(scrape: Scrape, tally: PartitionTally) -> None:
    """Write the states of this broker's partitions."""
    led = tally.led
    scrape.put(rows.PARTITIONS, led.partitions, "leader")
    scrape.put(rows.PARTITIONS, tally.followed, "follower")
    scrape.put(rows.UNDER_REPLICATED, led.under_replicated)
    scrape.put(rows.AT_MIN_ISR, led.at_min_isr)
    scrape.put(rows.UNDER_MIN_ISR, led.under_min_isr)
    scrape.put(rows.MOVING, led.moving)
    for isr, count in sorted(led.by_isr.items()):
        scrape.put(rows.LED_BY_ISR, count, isr)


def collect_replication(
    scrape: Scrape, figures: ReplicationMetrics, lags: dict[NodeId, int]
) -> None:
    """Write replication metrics, and the lag of followers."""
    scrape.put(rows.REPLICATED_BYTES, figures.replicated_bytes)
    scrape.put(rows.ISR_GROWN, figures.isr_grown)
    scrape.put(rows.ISR_SHRUNK, figures.isr_shrunk)
    for follower, lag in sorted(lags.items()):
        scrape.put(rows.FOLLOWER_LAG, lag, follower)


def collect_cluster(scrape: Scrape, tally: PartitionTally, image: MetadataImage) -> None:
    """Write the state of the cluster in the metadata, on the active controller."""
    all_of_them = tally.everywhere
    fenced = sum(1 for broker in image.brokers.values() if broker.fenced)
    active = sum(1 for broker in image.brokers.values() if broker.is_active)
    scrape.put(rows.CLUSTER_BROKERS, active, "active")
    scrape.put(rows.CLUSTER_BROKERS, fenced, "fenced")
    scrape.put(rows.CLUSTER_BROKERS, len(image.brokers) - active - fenced, "stopping")
    scrape.put(rows.CLUSTER_TOPICS, len(image.topics_by_id))
    scrape.put(rows.CLUSTER_PARTITIONS, all_of_them.partitions)
    scrape.put(rows.CLUSTER_OFFLINE, all_of_them.offline)
    scrape.put(rows.CLUSTER_UNDER_REPLICATED, all_of_them.under_replicated)
    scrape.put(rows.CLUSTER_UNDER_MIN_ISR, all_of_them.under_min_isr)
    scrape.put(rows.CLUSTER_NOT_PREFERRED, all_of_them.not_preferred)


def collect_quorum(scrape: Scrape, raft: RaftNode) -> None:
    """Write the Raft state, on a leader also that of the others; visits every replica."""
    status = raft.status()
    scrape.put(rows.RAFT_EPOCH, status.epoch)
    scrape.put(rows.RAFT_LEADER, NO_NODE if status.leader is None else status.leader.node_id)
    scrape.put(rows.RAFT_VOTERS, len(status.voters))
    scrape.put(rows.RAFT_HIGH_WATERMARK, status.high_watermark)
    scrape.put(rows.RAFT_LOG_END, status.log_end_offset)
    scrape.put(rows.RAFT_LOG_START, status.log_start_offset)
    scrape.put(rows.RAFT_DROPPED, raft.transport_statistics().dropped)
    if not status.is_leader:
        return
    seen: set[NodeId] = set()
    for member in (*status.voters, *status.observers):
        node_id = member.member.node_id
        if node_id in seen:
            continue  # the replica of an earlier directory id: the voter comes first
        seen.add(node_id)
        if member.lag is not None:
            scrape.put(rows.RAFT_LAG, member.lag, node_id)
        if member.heard_ms_ago is not None:
            scrape.put(rows.RAFT_SILENCE, member.heard_ms_ago / 1000, node_id)


def collect_metadata(
    scrape: Scrape, metadata: MetadataStateMachine, publisher: MetadataPublisher
) -> None:
    """Write the committed and applied metadata offsets."""
    scrape.put(rows.METADATA_COMMITTED, metadata.committed_image.offset)
    scrape.put(rows.METADATA_APPLIED, publisher.applied_offset)


def collect_storage(scrape: Scrape, directory: DataDirectory) -> None:
    """Write the metrics of the data directory; visits every open log and makes a system call."""
    figures = directory.figures
    scrape.put(rows.STORAGE_WRITTEN, figures.written_bytes)
    scrape.put(rows.STORAGE_QUEUED, figures.queued_bytes)
    scrape.put(rows.STORAGE_OPEN_LOGS, figures.open_logs)
    scrape.put(rows.STORAGE_FAILED_LOGS, figures.failed_logs)
    for policy, took_ms in figures.flush_times.items():
        scrape.put_histogram(rows.STORAGE_FLUSH, took_ms, policy)
    try:
        free, size = figures.disk_bytes()
    except OSError:
        return  # no value is better than a wrong one
    scrape.put(rows.DISK_FREE, free)
    scrape.put(rows.DISK_SIZE, size)
    scrape.put(rows.DISK_LOW, int(figures.is_reserve_used))


def collect_topics(
    scrape: Scrape,
    image: MetadataImage,
    directory: DataDirectory,
    *,
    node_id: NodeId,
    topics_max: int,
) -> Iterator[None]:
    """Write the metrics of the first topics by name; visits each of their partitions. Yields at
    intervals, so that other tasks run."""
    topics, seen = image.sorted_topics(), 0
    for topic in topics[:topics_max]:
        end_offsets = size_bytes = 0
        for index, state in topic.partitions.items():
            log = directory.figures.log(f"{topic.name}-{index}")
            if log is not None and state.leader == node_id:
                end_offsets += log.log_end_offset
                size_bytes += log.size_bytes
        scrape.put(rows.TOPIC_END_OFFSETS, end_offsets, topic.name)
        scrape.put(rows.TOPIC_BYTES, size_bytes, topic.name)
        seen += len(topic.partitions)
        if seen >= COUNTED_A_STEP:
            seen = 0
            yield
    scrape.put(rows.TOPICS_UNSHOWN, max(0, len(topics) - topics_max))


def collect_kafka(scrape: Scrape, server: KafkaServer) -> None:
    """Write the metrics of Kafka clients' requests; visits every key that was requested."""
    figures = server.figures
    for name, listener in figures.listeners.items():
        scrape.put(rows.KAFKA_CONNECTIONS, listener.open, name)
        scrape.put(rows.KAFKA_ACCEPTED, listener.accepted, name)
        scrape.put(rows.KAFKA_REFUSED, listener.refused, name)
        for reason, count in listener.ended.items():
            scrape.put(rows.KAFKA_ENDED, count, name, reason)
    for name, api in figures.apis.items():
        scrape.put(rows.KAFKA_REQUESTS, api.answered, name, "answered")
        scrape.put(rows.KAFKA_REQUESTS, api.unanswered, name, "unanswered")
        scrape.put(rows.KAFKA_USUAL, api.usual, name)
        if api.took_ms.count:
            scrape.put_histogram(rows.KAFKA_REQUEST_SECONDS, api.took_ms, name)
        for code, count in api.errors.items():
            scrape.put(rows.KAFKA_ERRORS, count, name, code)
    scrape.put(rows.KAFKA_OPEN, figures.open)
    scrape.put(rows.KAFKA_HELD, server.memory.taken)
    scrape.put(rows.KAFKA_HELD_MAX, server.memory.bytes_max)
    scrape.put(rows.KAFKA_RECEIVED, figures.received_bytes)
    scrape.put(rows.KAFKA_SENT, figures.sent_bytes)
