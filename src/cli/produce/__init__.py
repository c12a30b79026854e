"""`quorumlog produce`: produce the lines, JSON objects, CSV rows or raw bytes of an input.

`command` and `options` define the command line; `inputs` reads the input, `parsers` splits
it into records, `sender` sends them, `report` prints the outcomes.
"""
