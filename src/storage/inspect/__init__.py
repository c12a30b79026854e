"""Offline inspection of a data directory: dump, check, repair, diff.

`dump` prints a file row by row, `check` verifies a log or a whole directory, `repair` fixes the
findings that are safe to fix, `diff` compares two copies. All of it works on files only, through
the files port, in bounded memory, and trusts no content. Only `repair` writes.
"""
