"""Sending: buffering, batching, routing to leaders, acknowledgements.

`producer` is the public class, `accumulator` buffers records by partition, `sender` routes batches
to leaders, `leader_link` owns the Produce stream to one broker, `retry` handles failures.
"""
