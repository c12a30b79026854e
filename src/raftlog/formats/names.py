"""The name of the metadata log on disk."""

from typing import Final

METADATA_LOG_NAME: Final = "__cluster_metadata-0"
