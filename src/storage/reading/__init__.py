"""Lookups in the segments of a log by offset and by time, and the ranges of reads."""
