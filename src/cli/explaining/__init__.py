"""`quorumlog explain`: causes of unhealthy replicas, brokers and groups, with remedies."""
