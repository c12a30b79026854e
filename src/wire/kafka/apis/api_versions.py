"""ApiVersions: which requests are offered, in which versions (KIP-35, KIP-511).

A caller of a newer version than any here is answered in version 0, which every client can read.
"""

from typing import Final

from ..api import Answer, Api, Call, Door
from ..headers import API_VERSIONS

UNSUPPORTED_VERSION: Final = 35


async def api_versions(door: Door, call: Call) -> Answer:
    """List the keys of `APIS`, and the features of the cluster."""
    from . import APIS

    is_known = call.body is not None
    if is_known and call.version >= 3:
        call.client.software_name = call.body.client_software_name
        call.client.software_version = call.body.client_software_version
    keys = [
        {
            "api_key": api.key,
            "min_version": api.low if api.advertised_low is None else api.advertised_low,
            "max_version": api.high,
        }
        for api in APIS
    ]
    return {"error_code": 0 if is_known else UNSUPPORTED_VERSION, "api_keys": keys}


API: Final = Api(
    key=API_VERSIONS, name="ApiVersions", low=0, high=4, flexible=3, handle=api_versions
)
