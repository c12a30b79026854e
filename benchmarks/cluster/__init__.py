"""Whole clusters of real processes on one machine: the cost of replicas and of failures.

`replication` compares three replicas with acks=all with one replica and acks=1, `failover` kills
leaders, controllers, and both in one node, `restart` restarts every node under load, `scale`
creates many partitions and measures their cost when idle. `nodes` starts, stops and observes the
processes. All requests come from quorumlog's client with its defaults, unless a module says
otherwise.
"""
