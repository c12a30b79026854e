"""Looking after a cluster: `admin` for topics and brokers, `configs` for what it answers."""
