"""`quorumlog consume`: print records, or write them to a file.

`command` and `options` define the command line; `reading` reads ranges of partitions, `receiving`
writes records as lines (`record_lines`) or to a file (`record_files`).
"""
