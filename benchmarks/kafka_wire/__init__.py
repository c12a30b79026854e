"""The Kafka listener compared with Apache Kafka and others: the same requests over raw sockets.

`load.c` sends encoded requests, `ceiling.c` is a bare server for them; `batches` encodes,
`generator` compiles and runs both programs, `wire` sends the other requests. Brokers are started by
`ours`, `apache_kafka` and `peers`, from files that `artifacts` fetches. Parts of the benchmark are
`throughput`, `latency`, `clients` (common clients, and systems with protocols of their own) and
`starts`; `pairs` has the rules of comparisons, `words` the text of the page.
"""
