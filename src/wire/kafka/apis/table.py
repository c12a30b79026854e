"""The API keys that are offered: a row each. What has no row is not advertised."""

from typing import Final

from ..api import Api
from .api_versions import API as API_VERSIONS

APIS: Final[tuple[Api, ...]] = (API_VERSIONS,)
"""By ascending key."""
