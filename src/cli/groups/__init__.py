"""`quorumlog groups`: list, describe and delete consumer groups, and reset their offsets."""
