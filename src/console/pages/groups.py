"""Groups: the list with the lags of its visible part."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ...clients.admin.groups import Group, GroupListing
from ...errors import QuorumlogError
from ...settings.query_groups import START_GROUP_PREFIX
from ..cluster_view import LIST_MS, groups
from ..lists import part_of
from ..page import Page, Values, Visit

REFRESH_S: Final = 5.0  # a refresh describes every visible group
LEVELS: Final = {"Stable": "good", "Empty": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One line of the list."""

    listing: GroupListing
    level: str
    group: Group | None  # None: its coordinator did not answer
    error: str

    @property
    def has_lag(self) -> bool:
        """True if an offset of the group is committed."""
        return self.group is not None and any(
            each.committed is not None for each in self.group.offsets
        )


async def load(visit: Visit) -> Values:
    """Read the list; members and lags of the visible groups alone."""
    log = await visit.log()
    is_internal = bool(visit.query.get("internal"))
    state = visit.query.get("state", "")
    listed = await log.admin.list_reachable_groups(timeout_ms=LIST_MS)
    listings = [
        each
        for each in listed.groups
        if is_internal or not each.name.startswith(START_GROUP_PREFIX)
    ]
    found = part_of(
        [each for each in listings if state in ("", each.state)],
        path="/groups",
        query=visit.query,
        text=lambda each: each.name,
        columns={
            "name": lambda each: each.name,
            "state": lambda each: (each.state, each.name),
            "protocol": lambda each: (each.type, each.name),
            "coordinator": lambda each: (each.coordinator, each.name),
        },
    )
    described = await groups(log, [each.name for each in found.rows])
    return {
        "groups": found,
        "missing": listed.errors,
        "rows": [_row(*each) for each in zip(found.rows, described, strict=True)],
        "is_internal": is_internal,
        "state": state,
        "states": sorted({each.state for each in listings} | ({state} - {""})),
    }


def _row(listing: GroupListing, described: Group | QuorumlogError) -> GroupRow:
    is_known = isinstance(described, Group)
    return GroupRow(
        listing=listing,
        level=level_of(listing.state),
        group=described if isinstance(described, Group) else None,
        error="" if is_known else str(described),
    )


def level_of(state: str) -> str:
    """Return "good" for a stable group, "" for one without members, else "warning"."""
    return LEVELS.get(state, "warning")


def group_path(name: str, page: str = "") -> str:
    """Return the path of a group's page. The name is a parameter, since it may contain slashes."""
    return f"/group{page}?name={quote(name, safe='')}"


GROUPS: Final = Page(
    path="/groups",
    section="groups",
    title="Groups",
    template="groups.html",
    load=load,
    refresh_s=REFRESH_S,
)
PAGES: Final = (GROUPS,)
CHANGES: Final = ()
