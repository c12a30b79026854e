"""AlterConfigs: replace a resource's configs; those not named return to their defaults.
IncrementalAlterConfigs changes single configs (KIP-339)."""

from typing import Any, Final

from ....errors import InvalidRequest
from ..api import Answer, BrokerContext, Call, KafkaApi
from ..config_resources import ConfigChange, alter


async def alter_configs(broker: BrokerContext, call: Call) -> Answer:
    """Replace the configs of each resource."""
    return await alter(broker, call, _changes, replace=True)


def _changes(resource: Any) -> list[ConfigChange]:
    for config in resource.configs:
        if config.value is None:
            raise InvalidRequest(f"{config.name}: no value; leave it out for its default")
    return [(config.name, config.value) for config in resource.configs]


API: Final = KafkaApi(
    key=33,
    name="AlterConfigs",
    low=0,
    high=2,
    flexible=2,
    handle=alter_configs,
    elements_max=5_000,
)
