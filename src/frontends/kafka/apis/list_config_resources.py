"""ListConfigResources: list the topics and brokers, all of which have configs, and the groups that
have some set (KIP-1142).

Topics and groups are left out if the client has no right to DescribeConfigs on them.
Client metrics, which are all that version 0 asks for, have no configs here, so it lists nothing.
"""

from collections.abc import Iterator
from typing import Final

from ....metadata.acls import AclOperation, AclResourceType
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..config_resources import BROKER, GROUP, OTHERS, TOPIC
from ..encoding_offload import encode_if_large
from ..endpoints import endpoints
from ..error_codes import UNSUPPORTED_VERSION

_CLIENT_METRICS: Final = 16
_DESCRIBE_TOPIC: Final = (AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC)
_DESCRIBE_GROUP: Final = (AclOperation.DESCRIBE_CONFIGS, AclResourceType.GROUP)


async def list_config_resources(broker: BrokerContext, call: Call) -> Answer:
    """List the resources of the requested types, or of all types."""
    kinds = set(getattr(call.body, "resource_types", (_CLIENT_METRICS,)))
    if not kinds <= {TOPIC, BROKER, GROUP, *OTHERS}:
        return {"error_code": UNSUPPORTED_VERSION, "config_resources": ()}
    authorizer, client = broker.api.authorizer, call.client.identity
    denial = authorizer.denial(client, AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
    if denial is not None:
        return {"error_code": denial.code, "config_resources": ()}
    resources = list(_named(broker, call, kinds or {TOPIC, BROKER, GROUP}))
    answer = {"error_code": 0, "config_resources": resources}
    return await encode_if_large(broker, call, answer, elements=len(resources))


def _named(broker: BrokerContext, call: Call, kinds: set[int]) -> Iterator[Fields]:
    authorizer, client = broker.api.authorizer, call.client.identity
    if TOPIC in kinds:
        for topic in broker.image.sorted_topics():
            if authorizer.allows(client, *_DESCRIBE_TOPIC, topic.name):
                yield {"resource_name": topic.name, "resource_type": TOPIC}
    if BROKER in kinds:
        for node_id in endpoints(broker.image, call.client, asked=broker.hosted.node_id):
            yield {"resource_name": str(node_id), "resource_type": BROKER}
    if GROUP in kinds:
        for group in sorted(broker.image.group_configs):
            if authorizer.allows(client, *_DESCRIBE_GROUP, group):
                yield {"resource_name": group, "resource_type": GROUP}


API: Final = KafkaApi(
    key=74,
    name="ListConfigResources",
    low=0,
    high=1,
    flexible=0,
    handle=list_config_resources,
)
