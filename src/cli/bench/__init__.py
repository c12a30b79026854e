"""`quorumlog bench`: benchmarks of a cluster, run from this machine.

`command` defines the options, `runs` the parts that all runs share; `produce`, `fetch` and
`latency` are the runs, `report` prints the results.
"""
