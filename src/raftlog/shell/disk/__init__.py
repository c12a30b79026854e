"""The durable state of a Raft node: its log, snapshots, epoch and vote."""
