"""The API keys that are offered: a row each. What has no row is not advertised."""

from typing import Final

from ..api import Api
from .api_versions import API as API_VERSIONS
from .create_topics import API as CREATE_TOPICS

APIS: Final[tuple[Api, ...]] = (
    API_VERSIONS,
    CREATE_TOPICS,
)
"""By ascending key."""
