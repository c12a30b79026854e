"""Consensus beside its peers: three voters on one machine, and how long they are without a leader.

The programs: `__main__` takes the rounds, `failover` the kills, `voter` and `pysyncobj_member` are
the processes of two of the systems; `ours`, `etcd`, `pysyncobj_cluster` and `controllers` start and
ask three of each. What they share: `wire` speaks gRPC by hand, `load` keeps so many proposals under
way, `processes` starts members and reads what they cost.
"""
