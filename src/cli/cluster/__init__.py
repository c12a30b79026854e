"""`quorumlog cluster`: a local cluster, one process per node."""
