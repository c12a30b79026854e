"""What a member keeps: its log, its snapshots, epoch and vote, and how a directory is formatted."""
