"""Every metric of a node by name: what it says, and what bounds the values of its labels.

Names end with their unit; counters of events get `_total` behind it where they are shown. Seconds
and bytes only. A label's values are a closed set, or as many as the cluster has nodes: names of
topics stand in the last part alone, and only where the node was told to show them.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """How a metric moves."""

    COUNTER = "counter"  # only grows, from 0 at the node's start
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row."""

    name: str  # without a counter's `_total`
    kind: Kind
    about: str  # a sentence
    labels: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name under which it is scraped."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

# --- the node ----------------------------------------------------------------------------------

NODE_INFO: Final = Metric(
    "quorumlog_node_info",
    _G,
    "1; the labels say which node this is.",
    ("node", "cluster", "roles", "version"),
)
READY: Final = Metric("quorumlog_ready", _G, "1 while /ready says that the node can serve.")
UPTIME: Final = Metric("quorumlog_uptime_seconds", _G, "Time since the node began to start.")
LOOP_LATENESS: Final = Metric(
    "quorumlog_loop_lateness_seconds",
    _H,
    "How late a timer of every 20 ms fired: how long the event loop kept everybody waiting.",
)
LOOP_STALL: Final = Metric(
    "quorumlog_loop_stall_seconds", _G, "The longest such wait of the last minute."
)

# --- calls -------------------------------------------------------------------------------------

CALLS: Final = Metric(
    "quorumlog_calls",
    _C,
    "Remote calls that ended, by what they ended with: ok, cancelled, or the error's name.",
    ("method", "outcome"),
)
CALL_SECONDS: Final = Metric(
    "quorumlog_call_seconds",
    _H,
    "Time from a call's arrival to its answer; of a long poll it includes the waiting.",
    ("method",),
)
CALLS_OPEN: Final = Metric(
    "quorumlog_calls_open", _G, "Calls and streams under way now.", ("method",)
)

# --- produce and fetch -------------------------------------------------------------------------

PRODUCED_BYTES: Final = Metric(
    "quorumlog_produced_bytes", _C, "Bytes of batches that clients gave to partitions led here."
)
PRODUCED_RECORDS: Final = Metric(
    "quorumlog_produced_records", _C, "Records in them that were acknowledged."
)
PRODUCE_FAILURES: Final = Metric(
    "quorumlog_produce_failures",
    _C,
    "Partitions' parts of produce requests that were answered with an error.",
)
PRODUCE_SECONDS: Final = Metric(
    "quorumlog_produce_seconds",
    _H,
    "Time from a produce request's arrival to its answer, replication and flush included.",
    ("acks",),
)
PRODUCES_WAITING: Final = Metric(
    "quorumlog_produces_waiting", _G, "Produce requests between their arrival and their answer."
)
FETCHED_BYTES: Final = Metric(
    "quorumlog_fetched_bytes", _C, "Bytes of batches that consumers were sent."
)
FETCH_SECONDS: Final = Metric(
    "quorumlog_fetch_seconds",
    _H,
    "Time of a consumer's fetch; waited=yes: it came to the log's end and waited for records.",
    ("waited",),
)
FETCHES_WAITING: Final = Metric(
    "quorumlog_fetches_waiting", _G, "Fetches that wait for new records."
)
SUBSCRIPTIONS: Final = Metric("quorumlog_subscriptions", _G, "Subscribe streams that are served.")

# --- partitions of this broker -----------------------------------------------------------------

PARTITIONS: Final = Metric(
    "quorumlog_partitions", _G, "Partitions with a replica here, by what it is.", ("role",)
)
LED_BY_ISR: Final = Metric(
    "quorumlog_led_partitions_by_isr",
    _G,
    "Partitions led here, by how many in-sync replicas they have.",
    ("isr",),
)
UNDER_REPLICATED: Final = Metric(
    "quorumlog_under_replicated_partitions",
    _G,
    "Partitions led here with a replica that is not in sync.",
)
AT_MIN_ISR: Final = Metric(
    "quorumlog_at_min_isr_partitions",
    _G,
    "Partitions led here that have just as many in-sync replicas as min.insync.replicas asks for,"
    " and more replicas than that.",
)
UNDER_MIN_ISR: Final = Metric(
    "quorumlog_under_min_isr_partitions",
    _G,
    "Partitions led here with too few in-sync replicas: acks=all is refused.",
)
FOLLOWER_LAG: Final = Metric(
    "quorumlog_follower_lag_records",
    _G,
    "Records that a follower lacks of the partition led here that it is furthest behind in.",
    ("follower",),
)
ISR_SHRUNK: Final = Metric(
    "quorumlog_isr_shrinks", _C, "Times that a partition led here lost in-sync replicas."
)
ISR_GROWN: Final = Metric(
    "quorumlog_isr_expansions", _C, "Times that a partition led here got in-sync replicas back."
)
REPLICATED_BYTES: Final = Metric(
    "quorumlog_replicated_bytes", _C, "Bytes of batches that were fetched from leaders."
)
MOVING: Final = Metric(
    "quorumlog_reassigning_partitions", _G, "Partitions led here whose replicas are being moved."
)

# --- the cluster, on the active controller --------------------------------------------------------

CONTROLLER_ACTIVE: Final = Metric(
    "quorumlog_controller_active", _G, "1 on the controller that leads, which tells the next rows."
)
CLUSTER_BROKERS: Final = Metric(
    "quorumlog_cluster_brokers",
    _G,
    "Registered brokers: active, fenced, or stopping.",
    ("state",),
)
CLUSTER_TOPICS: Final = Metric("quorumlog_cluster_topics", _G, "Topics.")
CLUSTER_PARTITIONS: Final = Metric("quorumlog_cluster_partitions", _G, "Partitions.")
CLUSTER_OFFLINE: Final = Metric(
    "quorumlog_cluster_offline_partitions", _G, "Partitions that nobody leads."
)
CLUSTER_UNDER_REPLICATED: Final = Metric(
    "quorumlog_cluster_under_replicated_partitions",
    _G,
    "Partitions with a replica that is not in sync.",
)
CLUSTER_UNDER_MIN_ISR: Final = Metric(
    "quorumlog_cluster_under_min_isr_partitions",
    _G,
    "Partitions with fewer in-sync replicas than min.insync.replicas asks for.",
)
CLUSTER_NOT_PREFERRED: Final = Metric(
    "quorumlog_cluster_not_preferred_leaders",
    _G,
    "Partitions led by another replica than the first of their assignment.",
)

# --- consensus and metadata --------------------------------------------------------------------

RAFT_EPOCH: Final = Metric("quorumlog_raft_epoch", _G, "The quorum's epoch.")
RAFT_LEADER: Final = Metric(
    "quorumlog_raft_leader_id", _G, "The node that leads the quorum, -1: none is known."
)
RAFT_LEADER_CHANGES: Final = Metric(
    "quorumlog_raft_leader_changes", _C, "How often this node saw another leader, or none any more."
)
RAFT_VOTERS: Final = Metric("quorumlog_raft_voters", _G, "Voters of the quorum.")
RAFT_HIGH_WATERMARK: Final = Metric(
    "quorumlog_raft_high_watermark", _G, "Everything below it in the metadata log is committed."
)
RAFT_LOG_END: Final = Metric(
    "quorumlog_raft_log_end_offset", _G, "Offset of the metadata log's next record here."
)
RAFT_LOG_START: Final = Metric(
    "quorumlog_raft_log_start_offset", _G, "First offset of the metadata log here."
)
RAFT_LAG: Final = Metric(
    "quorumlog_raft_lag_records",
    _G,
    "Records of the metadata log that a member lacks; told by the leader of every voter.",
    ("member",),
)
RAFT_SILENCE: Final = Metric(
    "quorumlog_raft_silence_seconds",
    _G,
    "Time since a member's last answer; told by the leader.",
    ("member",),
)
RAFT_DROPPED: Final = Metric(
    "quorumlog_raft_dropped_messages", _C, "Messages to members that found no way or no room."
)
METADATA_COMMITTED: Final = Metric(
    "quorumlog_metadata_committed_offset", _G, "Newest metadata offset that is committed here."
)
METADATA_APPLIED: Final = Metric(
    "quorumlog_metadata_applied_offset", _G, "Newest metadata offset that every part has applied."
)

# --- storage -----------------------------------------------------------------------------------

STORAGE_WRITTEN: Final = Metric(
    "quorumlog_storage_written_bytes", _C, "Bytes of batches written to logs, whoever sent them."
)
STORAGE_FLUSH: Final = Metric(
    "quorumlog_storage_flush_seconds",
    _H,
    "Time of a log's flush from its turn to its end; policy: that of the log.",
    ("policy",),
)
STORAGE_QUEUED: Final = Metric(
    "quorumlog_storage_queued_bytes", _G, "Bytes of appends that wait to be written."
)
STORAGE_OPEN_LOGS: Final = Metric("quorumlog_storage_open_logs", _G, "Logs that are open.")
STORAGE_FAILED_LOGS: Final = Metric(
    "quorumlog_storage_failed_logs", _G, "Open logs whose disk failed: nothing is written to them."
)
DISK_FREE: Final = Metric(
    "quorumlog_disk_free_bytes", _G, "Free space of the data directory's disk."
)
DISK_SIZE: Final = Metric("quorumlog_disk_size_bytes", _G, "Size of that disk.")
DISK_LOW: Final = Metric(
    "quorumlog_disk_low", _G, "1 while the reserve is used up and producers are refused."
)

# --- the Kafka listeners -------------------------------------------------------------------------

KAFKA_CONNECTIONS: Final = Metric(
    "quorumlog_kafka_connections", _G, "Connections of Kafka clients, by listener.", ("listener",)
)
KAFKA_ACCEPTED: Final = Metric(
    "quorumlog_kafka_connections_accepted", _C, "Such connections that were made.", ("listener",)
)
KAFKA_REFUSED: Final = Metric(
    "quorumlog_kafka_connections_refused",
    _C,
    "Such connections that were closed at once: there were as many as may be, or the node stops.",
    ("listener",),
)
KAFKA_ENDED: Final = Metric(
    "quorumlog_kafka_connections_ended",
    _C,
    "Such connections that ended: by the client, or here, since it was idle, slow with a request"
    " that it had begun, sent what is invalid, could be told of a failure by nothing else (acks=0),"
    " met a bug, or since the node stopped.",
    ("listener", "reason"),
)
KAFKA_REQUESTS: Final = Metric(
    "quorumlog_kafka_requests",
    _C,
    "Requests of Kafka clients, by what was asked; unanswered: their connection ended instead.",
    ("api", "outcome"),
)
KAFKA_REQUEST_SECONDS: Final = Metric(
    "quorumlog_kafka_request_seconds",
    _H,
    "Time from such a request's arrival to its answer; of a fetch it includes the waiting.",
    ("api",),
)
KAFKA_ERRORS: Final = Metric(
    "quorumlog_kafka_errors",
    _C,
    "Errors in such answers, each of an answer's parts by itself, by the protocol's number.",
    ("api", "code"),
)
KAFKA_OPEN: Final = Metric(
    "quorumlog_kafka_requests_open", _G, "Such requests that have come and are not answered."
)
KAFKA_HELD: Final = Metric(
    "quorumlog_kafka_requests_held_bytes",
    _G,
    "What they hold; at kafka.requests.bytes.max clients are not read any more.",
)
KAFKA_RECEIVED: Final = Metric(
    "quorumlog_kafka_received_bytes", _C, "Bytes that Kafka clients have sent."
)
KAFKA_SENT: Final = Metric(
    "quorumlog_kafka_sent_bytes", _C, "Bytes of answers to them, those not sent yet included."
)

# --- quotas of clients of the Kafka protocol -----------------------------------------------------

QUOTA_THROTTLES: Final = Metric(
    "quorumlog_quota_throttles",
    _C,
    "Answers after which a client had to wait, by the quota that it had used up.",
    ("quota",),
)
QUOTA_WAIT: Final = Metric(
    "quorumlog_quota_wait_seconds", _C, "Time that such clients were told to wait.", ("quota",)
)
QUOTA_CLIENTS: Final = Metric(
    "quorumlog_quota_clients", _G, "Clients that quotas are kept for, at most 10,000."
)

# --- consumer groups, at their coordinator -------------------------------------------------------

GROUPS: Final = Metric(
    "quorumlog_groups",
    _G,
    "Consumer groups that this broker coordinates, by their state.",
    ("state",),
)
GROUP_MEMBERS: Final = Metric("quorumlog_group_members", _G, "Members of these groups.")
GROUP_OFFSETS: Final = Metric(
    "quorumlog_group_offsets", _G, "Offsets that are stored of these groups."
)
GROUP_PARTITIONS: Final = Metric(
    "quorumlog_group_partitions",
    _G,
    "Partitions of __consumer_offsets that this broker coordinates: those that it serves, and those"
    " that it still reads.",
    ("state",),
)
GROUP_COMMITS: Final = Metric(
    "quorumlog_group_commits", _C, "Offsets that groups have committed here."
)
GROUP_GENERATIONS: Final = Metric(
    "quorumlog_group_generations",
    _C,
    "Rebalances: generations of classic groups, and epochs of groups of KIP-848.",
)
GROUP_LOADS: Final = Metric(
    "quorumlog_group_loads", _C, "Times that a partition of __consumer_offsets was read."
)
GROUP_LOAD_SECONDS: Final = Metric(
    "quorumlog_group_load_seconds", _C, "Time that this took, the wait for its commit included."
)
GROUP_RELOADS: Final = Metric(
    "quorumlog_group_reloads",
    _C,
    "How often a partition was read anew since something could not be stored.",
)

# --- topics, where metrics.topics.max allows them ------------------------------------------------

TOPIC_END_OFFSETS: Final = Metric(
    "quorumlog_topic_end_offsets",
    _G,
    "Sum of the end offsets of a topic's partitions that are led and open here; its rate is the"
    " rate of records.",
    ("topic",),
)
TOPIC_BYTES: Final = Metric(
    "quorumlog_topic_bytes", _G, "Bytes of a topic's logs that are led and open here.", ("topic",)
)
TOPICS_UNSHOWN: Final = Metric(
    "quorumlog_topics_unshown", _G, "Topics beyond metrics.topics.max, which the two leave out."
)

METRICS: Final = tuple(row for row in tuple(globals().values()) if isinstance(row, Metric))
"""All of them, in the order of this page."""
