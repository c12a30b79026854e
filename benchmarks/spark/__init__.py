"""The Spark source and sink beside the ceilings of Spark, Parquet and the Kafka connector.

`peers` has Python sources and a sink without a broker, the ceilings; `jobs` runs in a process with
a Spark of its own and measures; `artifacts` fetches the Spark of the Kafka connector. `words` has
the sections of the page.
"""
