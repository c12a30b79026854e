"""Hand-written codecs of the hot requests, in all versions, without copies of records.

Pure: bytes in, values out, and back. The handlers in `apis` decide, as for every key.
"""
