"""The composition root: configuration, wiring and lifecycle of one node.

The only package that imports every layer below it. `node.Node` runs on the real and on the
simulated runtime alike; `main` is the process around it.
"""
