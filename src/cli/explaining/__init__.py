"""`quorumlog explain`: why something is as it is, in a sentence, and what to do."""
