"""Bytes of the consensus log, on the disk and on the wire, to the core's values and back. Pure."""
