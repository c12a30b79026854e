"""ApiVersions: list the supported requests and versions (KIP-35, KIP-511), and the cluster's
features (KIP-584).

A request of an unsupported version is answered in version 0, which every client can decode, with
the versions of this key alone. The client then retries with one of them.
"""

import re
from typing import Final

from ....metadata import MetadataImage
from ....metadata.decisions.features import FEATURES, finalized_level
from ..api import Answer, BrokerContext, Call, Client, Fields, KafkaApi
from ..error_codes import INVALID_REQUEST, UNSUPPORTED_VERSION
from ..request import API_VERSIONS

ZERO_LEVELS_FROM: Final = 4
"""The first version with features that may have level 0: Java clients before 3.8, which send
version 3, do not connect to a broker that lists one (KAFKA-17011)."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def api_versions(broker: BrokerContext, call: Call) -> Answer:
    """List the keys of `APIS`, and the features of the cluster."""
    from . import APIS

    if call.body is None:
        return {"error_code": UNSUPPORTED_VERSION, "api_keys": [_row(API)]}
    if call.version >= 3 and not _introduce(call):
        return {"error_code": INVALID_REQUEST, "api_keys": []}
    return {
        "error_code": 0,
        "api_keys": [_row(api) for api in APIS],
        **_features(broker.image, call.version),
    }


def _row(api: KafkaApi) -> Fields:
    low = api.low if api.advertised_low is None else api.advertised_low
    return {"api_key": api.key, "min_version": low, "max_version": api.high}


def _introduce(call: Call) -> bool:
    """Store the client's software name and version. Return False if they are malformed."""
    name, version = call.body.client_software_name, call.body.client_software_version
    if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
        return False
    client: Client = call.client
    client.software_name, client.software_version = name, version
    return True


def _features(image: MetadataImage, version: int) -> Fields:
    return {
        "supported_features": [
            {"name": row.name, "min_version": row.level_min, "max_version": row.level_max}
            for row in FEATURES.values()
            if row.level_min > 0 or version >= ZERO_LEVELS_FROM
        ],
        "finalized_features_epoch": image.offset,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name in FEATURES
            if (level := finalized_level(image, name))
        ],
    }


API: Final = KafkaApi(
    key=API_VERSIONS, name="ApiVersions", low=0, high=4, flexible=3, handle=api_versions
)
