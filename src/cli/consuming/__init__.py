"""`quorumlog consume`: records are printed, or written into a file.

`command` and `options` are what it can be told; `reading` reads a stretch of partitions,
`receiving` gives it to lines (`record_lines`) or to a file (`record_files`).
"""
