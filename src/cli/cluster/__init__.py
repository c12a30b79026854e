"""`quorumlog cluster`: nodes of a cluster as processes of this machine."""
