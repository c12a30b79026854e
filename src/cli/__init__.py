"""The `quorumlog` command line.

The outermost layer: it may import every other package. Heavy modules are imported inside the
commands that need them, so that `quorumlog --help` and `quorumlog dev` start fast. Start with
`main`.
"""
