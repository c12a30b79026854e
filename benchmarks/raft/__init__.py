"""Consensus compared with other systems: three voters on one machine, and their failovers.

The programs: `__main__` measures the rounds, `failover` the kills, `voter` and `pysyncobj_member`
are the processes of two of the systems; `ours`, `etcd`, `pysyncobj_cluster` and `controllers` run
three of each. Shared modules: `wire` is a gRPC client, `load` keeps so many proposals in flight,
`processes` starts members and reads their costs.
"""
