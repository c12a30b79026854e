"""The shell of a coordinator: loads and stores the state of shards, and answers requests."""
