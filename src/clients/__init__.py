"""Client library: producer, consumer and admin for asyncio, and blocking clients on top of them.

Clients depend on the protocol and the record batch format, on no server package. `log.AsyncLog`
takes a `Runtime`, so it runs on the real and on the simulated one. Producers are idempotent by
default: a retry after an unknown outcome stores a record once.
"""
