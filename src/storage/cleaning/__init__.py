"""What leaves a log: old segments by retention, superseded records by compaction."""
