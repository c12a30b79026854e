"""The API keys that are offered: a row each. What has no row is not advertised."""

from typing import Final

from ..api import Api
from .api_versions import API as API_VERSIONS
from .create_topics import API as CREATE_TOPICS
from .fetch import API as FETCH
from .list_offsets import API as LIST_OFFSETS
from .metadata import API as METADATA
from .produce import API as PRODUCE

APIS: Final[tuple[Api, ...]] = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    API_VERSIONS,
    CREATE_TOPICS,
)
"""By ascending key."""
