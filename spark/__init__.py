"""Spark: the PySpark data source `quorumlog` and what makes a session ready for it.

A source in pure Python over Arrow, for `spark.read` and `spark.readStream`; no jar. `options`,
`offsets` and `planning` decide and know neither Spark nor a broker; `cluster` and `fetching` talk
to brokers; `source`, `batch` and `stream` are what Spark calls.
"""
