"""Replicas that keep up: followers ask, leaders answer and ask the controller who is in sync."""
