"""`quorumlog produce`: an input becomes records.

`command` and `options` are what it can be told; `inputs` reads files and stdin, `pieces` cuts them,
`forms` makes records of the pieces, `sending` hands them to the producer, `report` tells what
became of each.
"""
