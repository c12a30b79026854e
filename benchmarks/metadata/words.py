"""The labels of this folder's figures on the page, in order."""

COSTS = {
    "topics": "topics",
    "brokers": "brokers",
    "image_mib": "image, MiB",
    "bytes_a_partition": "image, bytes a partition",
    "load_s": "controller started on a snapshot, s",
    "write_s": "snapshot written, s",
    "snapshot_mib": "snapshot, MiB",
    "replicas_changed": "replicas of a failed broker",
    "leaders_moved": "leaders among them",
    "moved_s": "all of them moved and committed, s",
    "moved_stall_ms": "longest stall of the loop, ms",
    "config_us": "a topic's config set, µs",
    "move_us": "a partition's replicas changed, µs",
    "create_us": "a topic created, µs",
    "delete_us": "a topic deleted, µs",
}

ROLLING = {
    "virtual_s": "virtual seconds",
    "metadata_records": "records of metadata committed",
    "leaders_moved": "leaderships moved, there and back",
    "isr_shrunk": "in-sync sets shrunk",
    "orphans_max": "partitions without a live replica, at most",
    "gaps": "partitions with a crashed leader",
    "gap_median_ms": "without a leader, median virtual ms",
    "gap_p99_ms": "p99 virtual ms",
    "gap_max_ms": "longest, virtual ms",
    "acknowledged": "records acknowledged by all in-sync replicas",
    "refused": "appends without a leader",
}
