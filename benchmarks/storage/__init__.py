"""What the storage costs beside the bare system calls and beside its peers, a module a row."""
