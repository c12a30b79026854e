"""The common part of AlterConfigs and IncrementalAlterConfigs.

Each resource has its own result. The changes of one resource apply atomically.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...errors import InvalidRequest
from ...proto import admin_pb2 as pb
from ...runtime.error_detail import decode_error
from .api import Answer, BrokerContext, Call
from .config_resources import key_of, resource_of, result_of
from .large_answers import encode_if_large
from .parts import check_count, outcomes, repeated, wait_applied

ChangesOf: TypeAlias = Callable[[Any], Sequence[pb.ConfigChange]]
"""Returns the changes of a resource of the request; raises InvalidRequest."""


async def alter(door: BrokerContext, call: Call, changes_of: ChangesOf, *, replace: bool) -> Answer:
    """Change each resource that is named once. `replace`: configs that are not named return to
    their defaults."""
    resources = call.body.resources
    twice = repeated(map(key_of, resources))

    async def change(resource: Any) -> None:
        if key_of(resource) in twice:
            raise InvalidRequest("resource: named twice in the request; name each resource once")
        check_count(len(resource.configs))
        for name in repeated(config.name for config in resource.configs):
            raise InvalidRequest(f"{name}: given twice for this resource; give each config once")
        await _alter(door, call, resource_of(resource), changes_of(resource), replace=replace)

    results = await outcomes(door, resources, change, context=call.context)
    told = (result_of(*each) for each in zip(resources, results, strict=True))
    return await encode_if_large(door, call, {"responses": told}, elements=len(resources))


async def _alter(
    door: BrokerContext,
    call: Call,
    resource: pb.ConfigResource,
    changes: Sequence[pb.ConfigChange],
    *,
    replace: bool,
) -> None:
    if not (changes or replace):
        await _look(door, call, resource)
        return
    if resource.HasField("broker"):
        raise InvalidRequest(
            "settings of a single broker are read-only; edit its configuration file, or name no"
            " broker to change the cluster's settings"
        )
    validate_only = call.body.validate_only
    if resource.HasField("topic"):
        of_topic = pb.AlterConfigsRequest(
            topic=resource.topic, changes=changes, validate_only=validate_only, replace=replace
        )
        offset = (await door.admin.alter_configs(of_topic, call.context)).metadata_offset
    else:
        of_cluster = pb.AlterClusterConfigsRequest(
            changes=changes, validate_only=validate_only, replace=replace
        )
        answer = await door.admin.alter_cluster_configs(of_cluster, call.context)
        offset = answer.metadata_offset
    await wait_applied(door, offset, call.context)


async def _look(door: BrokerContext, call: Call, resource: pb.ConfigResource) -> None:
    """Raise the error that a change of the resource would raise; change nothing."""
    request = pb.DescribeConfigsRequest(resources=[resource])
    (result,) = (await door.admin.describe_configs(request, call.context)).results
    if result.HasField("error"):
        raise decode_error(result.error)
