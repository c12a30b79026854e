"""The cost of the metadata of a large cluster: memory, snapshots, a failed broker, a command."""
