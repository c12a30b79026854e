"""The cost of the storage compared with bare system calls and other codecs, one module per row."""
