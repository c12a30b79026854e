"""`quorumlog partitions`: how partitions are, where they are, who leads them."""
