"""Transactions: the state of transactional ids (KIP-98, KIP-360, KIP-890).

A transactional id is stored in one partition of `__transaction_state`; the leader of that partition
is its coordinator. All decisions are pure: a `TransactionShard` holds the transactional ids of one
partition, takes a request and the time, and returns records to store, replies and marker work. The
shell appends the records, and sends replies and starts marker work once every record that they
depend on is committed.

This package imports nothing: `requests` and `records` take time to import, and a broker starts
without them.
"""
