"""The byte formats of the metadata log on disk and on the wire. Pure."""
