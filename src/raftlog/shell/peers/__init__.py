"""Communication between Raft nodes: streams of frames, calls, addresses and queues."""
