"""`quorumlog mirror`: run a mirror, promote copies, see them."""
