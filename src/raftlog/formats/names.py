"""What the metadata log is called on disk."""

from typing import Final

METADATA_LOG_NAME: Final = "__cluster_metadata-0"
