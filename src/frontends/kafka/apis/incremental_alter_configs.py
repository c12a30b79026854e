"""IncrementalAlterConfigs: set and delete configs, append to and subtract from lists (KIP-339)."""

from typing import Any, Final

from ....errors import InvalidRequest
from ....metadata import ListChange
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..config_resources import ConfigChange, alter, is_never_set
from ..request_limits import ELEMENTS_MAX_OF_LISTS

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # config operations


async def incremental_alter_configs(broker: BrokerContext, call: Call) -> Answer:
    """Change the configs of each resource."""
    return await alter(broker, call, _changes, replace=False)


def _changes(resource: Any) -> list[ConfigChange]:
    return [
        _change(config)
        for config in resource.configs
        if config.config_operation != DELETE or not is_never_set(resource, config.name)
    ]


def _change(config: Any) -> ConfigChange:
    number = config.config_operation
    if number not in (SET, DELETE, APPEND, SUBTRACT):
        raise InvalidRequest(
            f"{config.name}: operation {number} is unknown; give 0 (set), 1 (delete), 2 (append) or"
            " 3 (subtract)"
        )
    if number == DELETE:
        return config.name, None
    if config.value is None:
        raise InvalidRequest(f"{config.name}: no value; delete it for its default")
    if number == SET:
        return config.name, config.value
    return ListChange(
        name=config.name,
        parts=tuple(part.strip() for part in config.value.split(",")),
        is_removal=number == SUBTRACT,
    )


API: Final = KafkaApi(
    key=44,
    name="IncrementalAlterConfigs",
    low=0,
    high=1,
    flexible=1,
    handle=incremental_alter_configs,
    elements_max=ELEMENTS_MAX_OF_LISTS,
)
