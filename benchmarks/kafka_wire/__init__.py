"""The Kafka door beside Apache Kafka and others: the same requests over raw sockets to each.

`load.c` replays requests that were encoded before, `ceiling.c` is the least that could answer
them; `requests` encodes, `generator` compiles and runs both programs, `wire` asks brokers the few
other things. Brokers are started by `ours`, `kafka` and `peers`; what those need is fetched by
`artifacts`. Parts of the benchmark are `throughput`, `latency`, `clients` (real clients, and
systems with protocols of their own) and `starts`; `words` is what the page says of them.
"""
