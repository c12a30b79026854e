"""Consumer group membership (KIP-848): the coordinator assigns the partitions.

`member` is the pure state machine: it gets responses and the time, and returns heartbeats to send
and partitions to revoke or assign, which it takes from `reconciler`. `membership` executes them in
its own tasks and runs the application's callbacks. `commits` commits the offsets of delivered
records, `coordinator` has the requests to the coordinator, `group_consumer` the public class.
"""
