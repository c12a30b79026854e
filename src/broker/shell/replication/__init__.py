"""Replication of a node: `follower` fetches, `leader` serves followers, `isr` requests changes."""
