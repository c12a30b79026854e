"""IncrementalAlterConfigs: set and delete configs, append to and subtract from lists (KIP-339)."""

from typing import Any, Final

from ....errors import InvalidRequest
from ....proto import admin_pb2 as pb
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..configs import alter, is_never_set

DELETE: Final = 1
_OPERATIONS: Final = {
    0: pb.CONFIG_OPERATION_SET,
    DELETE: pb.CONFIG_OPERATION_SET,  # without a value
    2: pb.CONFIG_OPERATION_APPEND,
    3: pb.CONFIG_OPERATION_SUBTRACT,
}


async def incremental_alter_configs(broker: BrokerContext, call: Call) -> Answer:
    """Change the configs of each resource."""
    return await alter(broker, call, _changes, replace=False)


def _changes(resource: Any) -> list[pb.ConfigChange]:
    return [
        _change(config)
        for config in resource.configs
        if config.config_operation != DELETE or not is_never_set(resource, config.name)
    ]


def _change(config: Any) -> pb.ConfigChange:
    number = config.config_operation
    operation = _OPERATIONS.get(number)
    if operation is None:
        raise InvalidRequest(
            f"{config.name}: operation {number} is unknown; give 0 (set), 1 (delete), 2 (append) or"
            " 3 (subtract)"
        )
    if number == DELETE:
        return pb.ConfigChange(name=config.name)
    if config.value is None:
        raise InvalidRequest(f"{config.name}: no value; delete it for its default")
    return pb.ConfigChange(name=config.name, value=config.value, operation=operation)


API: Final = KafkaApi(
    key=44,
    name="IncrementalAlterConfigs",
    low=0,
    high=1,
    flexible=1,
    handle=incremental_alter_configs,
)
