"""Transactions compared with Apache Kafka.

`producers` runs a transactional producer of librdkafka or of Kafka's Java client; `rates` measures
transactions and transactional throughput with it. `wire` sends a producer's requests over one
connection: `idle` (idle open transactions), `fetch` (isolation levels) and `recovery` (failover of
a transaction coordinator) use it. `systems` has the brokers under test, `words` the text of the
page.
"""
