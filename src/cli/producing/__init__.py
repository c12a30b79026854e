"""`quorumlog produce`: produce the lines, JSON objects, CSV rows or raw bytes of an input.

`command` and `options` define the command line; `inputs` and `pieces` read and split the input,
`forms` parses records, `sending` sends them, `report` prints the outcomes.
"""
