"""Replication between brokers: the frames of its streams (pure), and `shell/`."""
