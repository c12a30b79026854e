"""What the metadata of a large cluster costs: memory, snapshots, a broker that falls, a command."""
