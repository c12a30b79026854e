"""`quorumlog bench`: what a cluster does, measured from this machine.

`command` is what it can be told, `runs` what all runs share; `produce`, `fetch` and `latency` are
the runs, `report` prints what came out.
"""
