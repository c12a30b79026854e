"""Generated from proto/quorumlog/v1 by `make proto`; never edited by hand."""
