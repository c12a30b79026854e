"""Replication: fetchers of followed partitions, streams of followers, and ISR changes."""
