"""Cluster administration: topics, partitions, configs, quotas, groups, brokers and the quorum."""
