"""The hot paths: Produce and Fetch read and written by hand, in all versions, records uncopied.

Pure: bytes in, values out, and back. What they mean is decided behind the door as for every key.
"""
