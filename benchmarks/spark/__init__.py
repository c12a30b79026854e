"""The Spark source and sink compared with the ceilings of Spark, Parquet and the Kafka connector.

`peers` has Python sources and a sink without a broker, the ceilings; `jobs` measures in a process
with its own Spark; `artifacts` fetches the Spark of the Kafka connector. `words` has the sections
of the page.
"""
