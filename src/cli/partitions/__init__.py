"""`quorumlog partitions`: state, replicas, reassignment and election of partitions."""
