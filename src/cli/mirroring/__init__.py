"""`quorumlog mirror`: run a mirror, promote mirror topics, show their lag."""
