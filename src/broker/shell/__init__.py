"""The asyncio side of the broker: replicas over a data directory, driven by the metadata image."""
