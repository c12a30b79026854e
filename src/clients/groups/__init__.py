"""Consumer group membership (KIP-848): the coordinator assigns the partitions.

`member` is the pure state machine: it gets responses and the time, and returns heartbeats to send
and partitions to revoke or assign. `membership` executes them in its own tasks and runs the
application's callbacks. `coordinator` has the requests to the coordinator, `delivered_positions`
tracks delivered records, `group_consumer` is the public class.
"""
