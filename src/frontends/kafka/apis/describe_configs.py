"""DescribeConfigs: return the configs of topics, of the cluster and of this broker, with the source
of each value.

A broker describes its own settings and those of the cluster that apply to it, and of no other
broker. Since version 3 the response has types and, on request, documentation (KIP-569).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ....api.configs import RESOURCES_MAX, ConfigResource, ResourceType
from ....errors import InvalidRequest, QuorumlogError
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..config_resources import described_config, resource_of, result_of
from ..encoding_offload import encode_if_large
from ..item_results import outcome


async def describe_configs(broker: BrokerContext, call: Call) -> Answer:
    """Describe each named resource once; other tasks run in between."""
    resources = call.body.resources
    too_many = InvalidRequest(
        f"request: {len(resources)} resources; the limit is {RESOURCES_MAX}; split the request"
    )
    if len(resources) <= RESOURCES_MAX:
        named = {(each.resource_type, each.resource_name): each for each in resources}
        resources = tuple(named.values())
    results: list[Fields] = []
    count = 0
    for resource in resources:
        described: Sequence[Fields] | QuorumlogError = too_many
        if len(resources) <= RESOURCES_MAX:
            described = await outcome(_describe(broker, call, resource))
        if isinstance(described, QuorumlogError):
            results.append(result_of(resource, described))
        else:
            results.append({**result_of(resource, None), "configs": described})
            count += len(described)
        await asyncio.sleep(0)
    return await encode_if_large(broker, call, {"results": results}, elements=len(results) + count)


async def _describe(broker: BrokerContext, call: Call, resource: Any) -> Sequence[Fields]:
    wanted = resource_of(resource)
    parts = [wanted]
    is_broker = wanted.type is ResourceType.BROKER
    if is_broker:
        parts.append(ConfigResource(type=ResourceType.CLUSTER))
    described, _ = await broker.api.configs.describe(parts, call.context)
    for each in described:
        if each.error is not None:
            raise each.error
    configs = [config for each in described for config in each.configs]
    named = frozenset(resource.configuration_keys or ())  # empty: all of them
    return [
        described_config(
            config,
            of_cluster=broker.image.cluster_configs.get(config.name),
            is_changed_here=not is_broker,
            with_synonyms=call.body.include_synonyms,
            with_doc=getattr(call.body, "include_documentation", False),
        )
        for config in sorted(configs, key=lambda config: config.name)
        if not named or config.name in named
    ]


API: Final = KafkaApi(
    key=32, name="DescribeConfigs", low=1, high=4, flexible=4, handle=describe_configs
)
