"""From a folder on the disk to an open log: owners, recovery, what it found."""
