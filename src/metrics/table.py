"""The table of a node's metrics: names, help texts and labels.

Names end with their unit; counters of events are shown with `_total` appended. Seconds and bytes
only. The values of a label are a closed set, or limited by the number of nodes. Topic names occur
only in the last section, and only if enabled.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class MetricKind(Enum):
    """The type of a metric."""

    COUNTER = "counter"  # only increases, from 0 at the node's start
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str  # without a counter's `_total`
    kind: MetricKind
    about: str  # the help text
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name under which it is exported."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

# --- the node ----------------------------------------------------------------------------------

NODE_INFO: Final = Metric(
    "quorumlog_node_info",
    _G,
    "1; the labels identify the node.",
    ("node", "cluster", "roles", "version"),
)
READY: Final = Metric("quorumlog_ready", _G, "1 while /ready reports that the node can serve.")
UPTIME: Final = Metric("quorumlog_uptime_seconds", _G, "Time since the start of the node.")
LOOP_LATENESS: Final = Metric(
    "quorumlog_loop_lateness_seconds",
    _H,
    "Delay of a 20 ms timer: the time for which the event loop was blocked.",
)
LOOP_STALL: Final = Metric(
    "quorumlog_loop_stall_seconds", _G, "The longest block of the event loop in the last minute."
)
AUDIT_LOST: Final = Metric(
    "quorumlog_audit_lines_lost",
    _C,
    "Lines of the audit log that could not be written, as on a full disk.",
)

# --- calls -------------------------------------------------------------------------------------

CALLS: Final = Metric(
    "quorumlog_calls",
    _C,
    "Finished remote calls by outcome: ok, cancelled, or the error's name.",
    ("method", "outcome"),
)
CALL_SECONDS: Final = Metric(
    "quorumlog_call_seconds",
    _H,
    "Time from a call's arrival to its answer, including the wait of a long poll.",
    ("method",),
)
CALLS_OPEN: Final = Metric("quorumlog_calls_open", _G, "Open calls and streams.", ("method",))

# --- produce and fetch -------------------------------------------------------------------------

PRODUCED_BYTES: Final = Metric(
    "quorumlog_produced_bytes", _C, "Bytes of batches that clients appended to partitions led here."
)
PRODUCED_RECORDS: Final = Metric(
    "quorumlog_produced_records", _C, "Acknowledged records in these batches."
)
PRODUCE_FAILURES: Final = Metric(
    "quorumlog_produce_failures",
    _C,
    "Partitions in produce requests that were answered with an error.",
)
PRODUCE_SECONDS: Final = Metric(
    "quorumlog_produce_seconds",
    _H,
    "Time from a produce request's arrival to its answer, including replication and flush.",
    ("acks",),
)
PRODUCES_WAITING: Final = Metric(
    "quorumlog_produces_waiting", _G, "Produce requests without an answer yet."
)
TRANSACTION_MARKERS: Final = Metric(
    "quorumlog_transaction_markers",
    _C,
    "Markers received for partitions led here, by outcome: commit or abort (appended), repeated,"
    " outdated (a later transaction of the producer has begun or ended), failed (to be retried).",
    ("outcome",),
)
TORN_COMMITS: Final = Metric(
    "quorumlog_torn_commits",
    _C,
    "Staged commits of which a log led here lacked records: an unclean election lost them.",
)
PARTITION_TRANSACTIONS: Final = Metric(
    "quorumlog_partition_transactions",
    _G,
    "Open transactions in the logs of partitions led here; one counts in each of its partitions.",
)
STABLE_OFFSET_LAG: Final = Metric(
    "quorumlog_stable_offset_lag",
    _G,
    "The largest number of offsets from the last stable offset to the high watermark of a partition"
    " led here: readers of committed records wait for them.",
)
FETCHED_BYTES: Final = Metric("quorumlog_fetched_bytes", _C, "Bytes of batches sent to consumers.")
FETCH_SECONDS: Final = Metric(
    "quorumlog_fetch_seconds",
    _H,
    "Time of a consumer's fetch; waited=yes: it waited for records at the log's end.",
    ("waited",),
)
FETCHES_WAITING: Final = Metric(
    "quorumlog_fetches_waiting", _G, "Fetches that are waiting for new records."
)
SUBSCRIPTIONS: Final = Metric("quorumlog_subscriptions", _G, "Open Subscribe streams.")

# --- partitions of this broker -----------------------------------------------------------------

PARTITIONS: Final = Metric(
    "quorumlog_partitions", _G, "Partitions with a replica here, by its role.", ("role",)
)
LED_BY_ISR: Final = Metric(
    "quorumlog_led_partitions_by_isr",
    _G,
    "Partitions led here, by number of in-sync replicas.",
    ("isr",),
)
UNDER_REPLICATED: Final = Metric(
    "quorumlog_under_replicated_partitions",
    _G,
    "Partitions led here with an out-of-sync replica.",
)
AT_MIN_ISR: Final = Metric(
    "quorumlog_at_min_isr_partitions",
    _G,
    "Partitions led here with exactly min.insync.replicas in-sync replicas and more replicas than"
    " that.",
)
UNDER_MIN_ISR: Final = Metric(
    "quorumlog_under_min_isr_partitions",
    _G,
    "Partitions led here with fewer in-sync replicas than min.insync.replicas; acks=all fails.",
)
FOLLOWER_LAG: Final = Metric(
    "quorumlog_follower_lag_records",
    _G,
    "A follower's largest lag in records over the partitions led here.",
    ("follower",),
)
ISR_SHRUNK: Final = Metric("quorumlog_isr_shrinks", _C, "ISR shrinks of partitions led here.")
ISR_GROWN: Final = Metric("quorumlog_isr_expansions", _C, "ISR expansions of partitions led here.")
REPLICATED_BYTES: Final = Metric(
    "quorumlog_replicated_bytes", _C, "Bytes of batches fetched from leaders."
)
MOVING: Final = Metric(
    "quorumlog_reassigning_partitions", _G, "Partitions led here that are being reassigned."
)

# --- the cluster, on the active controller --------------------------------------------------------

CONTROLLER_ACTIVE: Final = Metric(
    "quorumlog_controller_active",
    _G,
    "1 on the active controller, which exports the cluster metrics.",
)
CLUSTER_BROKERS: Final = Metric(
    "quorumlog_cluster_brokers",
    _G,
    "Registered brokers by state: active, fenced, or stopping.",
    ("state",),
)
CLUSTER_TOPICS: Final = Metric("quorumlog_cluster_topics", _G, "Topics.")
CLUSTER_PARTITIONS: Final = Metric("quorumlog_cluster_partitions", _G, "Partitions.")
CLUSTER_OFFLINE: Final = Metric(
    "quorumlog_cluster_offline_partitions", _G, "Partitions without a leader."
)
CLUSTER_UNDER_REPLICATED: Final = Metric(
    "quorumlog_cluster_under_replicated_partitions",
    _G,
    "Partitions with an out-of-sync replica.",
)
CLUSTER_UNDER_MIN_ISR: Final = Metric(
    "quorumlog_cluster_under_min_isr_partitions",
    _G,
    "Partitions with fewer in-sync replicas than min.insync.replicas.",
)
CLUSTER_NOT_PREFERRED: Final = Metric(
    "quorumlog_cluster_not_preferred_leaders",
    _G,
    "Partitions led by a replica other than the preferred one.",
)

# --- consensus and metadata --------------------------------------------------------------------

RAFT_EPOCH: Final = Metric("quorumlog_raft_epoch", _G, "The quorum's epoch.")
RAFT_LEADER: Final = Metric(
    "quorumlog_raft_leader_id", _G, "The leader of the quorum; -1: unknown."
)
RAFT_LEADER_CHANGES: Final = Metric(
    "quorumlog_raft_leader_changes",
    _C,
    "Leader changes seen by this node, including the loss of a leader.",
)
RAFT_VOTERS: Final = Metric("quorumlog_raft_voters", _G, "Voters of the quorum.")
RAFT_HIGH_WATERMARK: Final = Metric(
    "quorumlog_raft_high_watermark", _G, "High watermark of the metadata log on this node."
)
RAFT_LOG_END: Final = Metric(
    "quorumlog_raft_log_end_offset", _G, "Log end offset of the metadata log on this node."
)
RAFT_LOG_START: Final = Metric(
    "quorumlog_raft_log_start_offset", _G, "Log start offset of the metadata log on this node."
)
RAFT_LAG: Final = Metric(
    "quorumlog_raft_lag_records",
    _G,
    "A member's lag in records of the metadata log; the leader exports it for every voter.",
    ("member",),
)
RAFT_SILENCE: Final = Metric(
    "quorumlog_raft_silence_seconds",
    _G,
    "Time since a member's last answer; exported by the leader.",
    ("member",),
)
RAFT_DROPPED: Final = Metric(
    "quorumlog_raft_dropped_messages",
    _C,
    "Messages to members dropped for lack of a connection or of queue space.",
)
METADATA_COMMITTED: Final = Metric(
    "quorumlog_metadata_committed_offset", _G, "Latest committed metadata offset on this node."
)
METADATA_APPLIED: Final = Metric(
    "quorumlog_metadata_applied_offset",
    _G,
    "Latest metadata offset applied by all components of this node.",
)

# --- storage -----------------------------------------------------------------------------------

STORAGE_WRITTEN: Final = Metric(
    "quorumlog_storage_written_bytes",
    _C,
    "Bytes of batches written to logs, from clients and leaders.",
)
STORAGE_FLUSH: Final = Metric(
    "quorumlog_storage_flush_seconds",
    _H,
    "Time of a log's flush, without its wait in the queue; policy: the log's flush policy.",
    ("policy",),
)
STORAGE_QUEUED: Final = Metric("quorumlog_storage_queued_bytes", _G, "Bytes of queued appends.")
STORAGE_OPEN_LOGS: Final = Metric("quorumlog_storage_open_logs", _G, "Open logs.")
STORAGE_FAILED_LOGS: Final = Metric(
    "quorumlog_storage_failed_logs", _G, "Open logs after a disk failure; they are not written to."
)
DISK_FREE: Final = Metric(
    "quorumlog_disk_free_bytes", _G, "Free space of the data directory's disk."
)
DISK_SIZE: Final = Metric("quorumlog_disk_size_bytes", _G, "Size of the data directory's disk.")
DISK_LOW: Final = Metric(
    "quorumlog_disk_low", _G, "1 while free space is below the reserve and producers are refused."
)

# --- the Kafka listeners -------------------------------------------------------------------------

KAFKA_CONNECTIONS: Final = Metric(
    "quorumlog_kafka_connections",
    _G,
    "Open connections of Kafka clients, by listener.",
    ("listener",),
)
KAFKA_ACCEPTED: Final = Metric(
    "quorumlog_kafka_connections_accepted",
    _C,
    "Accepted connections of Kafka clients.",
    ("listener",),
)
KAFKA_REFUSED: Final = Metric(
    "quorumlog_kafka_connections_refused",
    _C,
    "Connections of Kafka clients closed at once, at the connection limit or while the node stops.",
    ("listener",),
)
KAFKA_ENDED: Final = Metric(
    "quorumlog_kafka_connections_ended",
    _C,
    "Closed connections of Kafka clients, by reason: closed by the client, idle, slow to send a"
    " request, invalid request, a failed produce request with acks=0, a bug, the node's stop, a"
    " failed authentication, or a limit of connections.",
    ("listener", "reason"),
)
KAFKA_REQUESTS: Final = Metric(
    "quorumlog_kafka_requests",
    _C,
    "Requests of Kafka clients by API; outcome=unanswered: the connection was closed instead.",
    ("api", "outcome"),
)
KAFKA_USUAL: Final = Metric(
    "quorumlog_kafka_usual_requests",
    _C,
    "Requests of Kafka clients that took the short way of usual requests, by API; the others cost"
    " more CPU.",
    ("api",),
)
KAFKA_REQUEST_SECONDS: Final = Metric(
    "quorumlog_kafka_request_seconds",
    _H,
    "Time from a Kafka request's arrival to its answer, including a fetch's wait.",
    ("api",),
)
KAFKA_ERRORS: Final = Metric(
    "quorumlog_kafka_errors",
    _C,
    "Errors in answers to Kafka clients, by error code; each part of an answer counts.",
    ("api", "code"),
)
KAFKA_OPEN: Final = Metric(
    "quorumlog_kafka_requests_open", _G, "Kafka requests without an answer yet."
)
KAFKA_HELD: Final = Metric(
    "quorumlog_kafka_requests_held_bytes",
    _G,
    "Memory of open Kafka requests; at kafka.requests.bytes.max, connections are not read.",
)
KAFKA_HELD_MAX: Final = Metric(
    "quorumlog_kafka_requests_held_max_bytes",
    _G,
    "The limit of this memory: kafka.requests.bytes.max.",
)
KAFKA_RECEIVED: Final = Metric(
    "quorumlog_kafka_received_bytes", _C, "Bytes received from Kafka clients."
)
KAFKA_SENT: Final = Metric(
    "quorumlog_kafka_sent_bytes",
    _C,
    "Bytes of answers to Kafka clients, including those not sent yet.",
)

# --- quotas of clients of the Kafka protocol -----------------------------------------------------

QUOTA_THROTTLES: Final = Metric(
    "quorumlog_quota_throttles",
    _C,
    "Answers with a throttle time, by the quota that was exceeded.",
    ("quota",),
)
QUOTA_WAIT: Final = Metric(
    "quorumlog_quota_wait_seconds", _C, "Sum of these throttle times.", ("quota",)
)
QUOTA_CLIENTS: Final = Metric(
    "quorumlog_quota_clients", _G, "Clients with quota state, at most 10,000."
)

# --- consumer groups, at their coordinator -------------------------------------------------------

GROUPS: Final = Metric(
    "quorumlog_groups",
    _G,
    "Consumer groups that this broker coordinates, by state.",
    ("state",),
)
GROUP_MEMBERS: Final = Metric("quorumlog_group_members", _G, "Members of these groups.")
GROUP_OFFSETS: Final = Metric("quorumlog_group_offsets", _G, "Committed offsets of these groups.")
GROUP_PARTITIONS: Final = Metric(
    "quorumlog_group_partitions",
    _G,
    "Partitions of __consumer_offsets that this broker coordinates, by state: served, or still"
    " loading.",
    ("state",),
)
GROUP_COMMITS: Final = Metric("quorumlog_group_commits", _C, "Offsets committed at this broker.")
GROUP_GENERATIONS: Final = Metric(
    "quorumlog_group_generations",
    _C,
    "Rebalances: generations of classic groups, and epochs of groups of KIP-848.",
)
GROUP_LOADS: Final = Metric(
    "quorumlog_group_loads", _C, "Loads of partitions of __consumer_offsets."
)
GROUP_LOAD_SECONDS: Final = Metric(
    "quorumlog_group_load_seconds",
    _C,
    "Time of these loads, including the wait for the commit of the log.",
)
GROUP_RELOADS: Final = Metric(
    "quorumlog_group_reloads",
    _C,
    "Reloads of partitions of __consumer_offsets after a failed append.",
)

# --- transactions ----------------------------------------------------------------------------

TRANSACTIONAL_IDS: Final = Metric(
    "quorumlog_transactional_ids", _G, "Transactional ids that this broker coordinates."
)
TRANSACTIONS_OPEN: Final = Metric(
    "quorumlog_transactions_open",
    _G,
    "Transactions of these ids and staged attempts that are open, or decided without all of their"
    " markers.",
)
TRANSACTIONS_OLDEST: Final = Metric(
    "quorumlog_transactions_oldest_seconds", _G, "Age of the oldest of these transactions; 0: none."
)
STAGED_NAMES: Final = Metric(
    "quorumlog_staged_names", _G, "Names of staged commits that this broker coordinates."
)
STAGED_ATTEMPTS: Final = Metric(
    "quorumlog_staged_attempts",
    _G,
    "Task attempts of these names, by state: open, sealed, or completing (committed or aborted,"
    " without all of their markers).",
    ("state",),
)
STAGED_OLDEST: Final = Metric(
    "quorumlog_staged_oldest_seconds", _G, "Age of the oldest of these attempts; 0: none."
)
TRANSACTION_COMMITS: Final = Metric(
    "quorumlog_transaction_commits",
    _C,
    "Transactions committed at this broker, or resumed by it after their commit.",
)
TRANSACTION_ABORTS: Final = Metric(
    "quorumlog_transaction_aborts",
    _C,
    "Transactions aborted at this broker, by reason: by their client, by another producer of the id"
    " (fenced), by timeout, or by an operator.",
    ("reason",),
)
TRANSACTION_PARTITIONS: Final = Metric(
    "quorumlog_transaction_partitions",
    _G,
    "Partitions of __transaction_state that this broker coordinates, by state: served, or still"
    " loading.",
    ("state",),
)
TRANSACTION_LOADS: Final = Metric(
    "quorumlog_transaction_loads", _C, "Loads of partitions of __transaction_state."
)
TRANSACTION_LOAD_SECONDS: Final = Metric(
    "quorumlog_transaction_load_seconds",
    _C,
    "Time of these loads, including the wait for the commit of the log.",
)
TRANSACTION_RELOADS: Final = Metric(
    "quorumlog_transaction_reloads",
    _C,
    "Reloads of partitions of __transaction_state after a failed append.",
)
MARKERS_PENDING: Final = Metric(
    "quorumlog_transaction_markers_pending",
    _G,
    "Markers of decided transactions that no partition leader has acknowledged yet.",
)
MARKERS_OLDEST: Final = Metric(
    "quorumlog_transaction_markers_oldest_seconds",
    _G,
    "Time since the decision of the oldest transaction with such a marker; 0: none.",
)
MARKER_REQUESTS: Final = Metric(
    "quorumlog_transaction_marker_requests", _C, "Requests with markers, to this broker too."
)
MARKERS_REPEATED: Final = Metric(
    "quorumlog_transaction_markers_repeated", _C, "Markers that were sent again."
)

# --- topics, where metrics.topics.max allows them ------------------------------------------------

TOPIC_END_OFFSETS: Final = Metric(
    "quorumlog_topic_end_offsets",
    _G,
    "Sum of the log end offsets of a topic's partitions that are led and open here; its rate is"
    " the topic's record rate.",
    ("topic",),
)
TOPIC_BYTES: Final = Metric(
    "quorumlog_topic_bytes", _G, "Bytes of a topic's logs that are led and open here.", ("topic",)
)
TOPICS_UNSHOWN: Final = Metric(
    "quorumlog_topics_unshown", _G, "Topics without topic metrics, beyond metrics.topics.max."
)

METRICS: Final = tuple(row for row in tuple(globals().values()) if isinstance(row, Metric))
"""All metrics, in the order of this module."""
