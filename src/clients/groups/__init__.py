"""Consumer group membership (KIP-848): the coordinator assigns the partitions.

`member` is the pure state machine: it gets responses and the time, and returns heartbeats to send
and partitions to revoke or assign. `membership` executes them in its own tasks. `calls` are the
requests to the coordinator, `handed` tracks delivered records, `callbacks` are the application's,
`group_consumer` is the public class.
"""
