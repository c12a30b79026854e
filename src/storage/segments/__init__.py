"""Segments of a log: files, indexes, leader epochs, flushes, truncation."""
