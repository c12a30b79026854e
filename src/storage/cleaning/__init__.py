"""Deletion by retention, and compaction."""
