"""Settings: the configs of the cluster, which change at run time, and the settings of brokers."""

import asyncio
from typing import Final

from ...clients.admin.configs import Config
from ...errors import InvalidConfig, QuorumlogError
from ..cluster_view import part
from ..lists import ListPart, part_of
from ..page import Form, Page, PageChange, Values, Visit
from .topic import check_unchanged

ROWS: Final = 100  # configs of one part of the list


async def load_cluster(visit: Visit) -> Values:
    """Read the configs of the cluster."""
    log = await visit.log()
    cluster, configs = await asyncio.gather(
        log.admin.describe_cluster(), log.admin.describe_configs(cluster=True)
    )
    return {"cluster": cluster, "node": None, "error": "", **_listed(visit, configs)}


async def load_broker(visit: Visit) -> Values:
    """Read the settings of one broker."""
    log = await visit.log()
    text = visit.arguments["broker"]
    node = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
    cluster = await log.admin.describe_cluster()
    is_known = any(each.id == node for each in cluster.brokers)
    configs: dict[str, Config] | QuorumlogError = {}
    error = "" if is_known else f"broker {text[:40]} is not registered"
    if is_known:
        configs = await part(f"broker {node}", log.admin.describe_configs(broker=node))
        error = str(configs) if isinstance(configs, QuorumlogError) else ""
    found = {} if isinstance(configs, QuorumlogError) else configs
    return {"cluster": cluster, "node": node, "error": error, **_listed(visit, found)}


def _listed(visit: Visit, configs: dict[str, Config]) -> Values:
    is_changed = bool(visit.query.get("changed"))
    rows = [each for each in configs.values() if not (is_changed and each.is_default)]
    found: ListPart[Config] = part_of(
        rows,
        path=visit.path,
        query=visit.query,
        text=lambda config: f"{config.name} {config.value} {config.doc}",
        columns={
            "name": lambda config: config.name,
            "source": lambda config: (config.is_default, config.source, config.name),
        },
        size=ROWS,
    )
    return {"configs": found, "is_changed": is_changed}


async def load_config(visit: Visit) -> Values:
    """Read one config of the cluster."""
    name = visit.arguments["config"]
    log = await visit.log()
    configs = await log.admin.describe_configs(cluster=True)
    if name not in configs:
        raise InvalidConfig(f"{name}: the cluster has no such config")
    return {"config": configs[name]}


async def alter(visit: Visit, form: Form) -> str:
    """Set or reset one config of the cluster."""
    name = visit.arguments["config"]
    log = await visit.log()
    check_unchanged((await log.admin.describe_configs(cluster=True)).get(name), form)
    if form.is_checked("reset"):
        await log.admin.alter_cluster_configs(delete=[name])
        visit.session.notice = f"Reset {name} of the cluster to its default."
    else:
        await log.admin.alter_cluster_configs({name: form.text("value")})
        visit.session.notice = f"Set {name} of the cluster to {form.text('value')}."
    return "/settings"


CLUSTER: Final = Page(
    path="/settings",
    section="settings",
    title="Settings",
    template="settings.html",
    load=load_cluster,
)
BROKER: Final = Page(
    path="/settings/broker/{broker}",
    section="settings",
    title="Settings of broker {broker}",
    template="settings.html",
    load=load_broker,
)
ALTER: Final = Page(
    path="/settings/config/{config}",
    section="settings",
    title="Change {config}",
    template="cluster_config.html",
    load=load_config,
    is_live=False,
)
PAGES: Final = (CLUSTER, BROKER, ALTER)
CHANGES: Final = (PageChange(page=ALTER, act=alter),)
