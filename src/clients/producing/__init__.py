"""Sending: `producer` takes records, `accumulator` gathers them by partition, `sender` routes full
batches to leaders, `leader_link` keeps the stream to one of them and answers what became of each.
"""
