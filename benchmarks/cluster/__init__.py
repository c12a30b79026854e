"""Whole clusters of real processes on one machine: what replicas cost, and what a failure costs.

`replication` sets three replicas with acks=all beside one with acks=1, `failover` kills leaders,
controllers, and both in one, `restart` restarts every node under load, `scale` makes many
partitions and looks at what they cost at rest. `nodes` starts, ends and watches the processes.
Everything is asked by the product's own client with its defaults, unless a module says otherwise.
"""
