"""Segments, one after the other: files, indexes, leader epochs, flushes, cutting the end off."""
