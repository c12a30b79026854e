"""The `quorumlog` command: every operation of the product by name.

The outermost room: it may see every other one, but nothing heavy is imported before a command
needs it, so that `quorumlog --help` and `quorumlog dev` start at once. Start with `main`.
"""
