"""Opening of data directories and logs: ownership, recovery, recovered state."""
