"""Looks at what lies in a data directory without a node: shows, proves, mends, compares it.

`dump` shows a file row by row, `check` proves a log or a whole directory, `repair` does what is
safe about what a check found, `diff` compares two copies. All of it works on files alone, through
the files port, in bounded memory, and believes nothing that it reads. Only `repair` writes.
"""
