"""`quorumlog consume`: print records, or write them to a file.

`command` and `options` define the command line; `reader` reads ranges of partitions,
`membership` reads as a group member, `writers` and `record_files` write lines and files.
"""
