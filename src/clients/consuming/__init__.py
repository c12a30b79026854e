"""Reading: `consumer` is what a program holds, `assigned_partitions` where it stands in each
partition, `fetcher` reads ahead from one leader, within bounds; `arrow_reader` reads ranges.
"""
