"""Whole runs: what the nodes do, what goes wrong, and what must hold in the end."""
