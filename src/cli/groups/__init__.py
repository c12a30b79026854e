"""`quorumlog groups`: consumer groups, and setting them back; `resetting` reads where to."""
