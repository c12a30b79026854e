"""Reading: the consumer, its assignment, prefetching from the leaders, and Arrow scans.

`consumer` is the public class, `assigned_partitions` holds the positions, `fetcher` prefetches
within bounds, `arrow_reader` reads ranges.
"""
