"""Access: the rights of the signed-in user, users, ACLs and quotas."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Final
from urllib.parse import urlencode

from ...clients.admin.acl_operations import OPERATIONS
from ...clients.admin.configs import ClientQuotas, QuotaEntity
from ...clients.admin.security import CLUSTER, MECHANISMS, Acl, AclFilter, AuthorizationDecision
from ...errors import InvalidRequest, QuorumlogError, ResourceNotFound, SecurityDisabled
from ...settings.quantities import parse_quantity, quantity_text
from ...visible_text import visible
from ..cluster_view import part
from ..lists import part_of
from ..page import Form, Page, PageChange, Values, Visit

RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
SHARE: Final = "request_percentage"
EVERY_OPERATION: Final = tuple(sorted({*chain.from_iterable(OPERATIONS.values()), "All"}))
FIELDS: Final = (
    "principal",
    "operation",
    "resource_type",
    "resource",
    "pattern",
    "permission",
    "host",
)
"""The fields of an ACL, as parameters of its form."""

# --- the rights of the user ----------------------------------------------------------------------


async def load_rights(visit: Visit) -> Values:
    """Read the decisions for the user's operations on the cluster, and that of the query."""
    log = await visit.log()
    principal = f"User:{visit.session.user}" if visit.session.user else ""
    operations = OPERATIONS["Cluster"] if principal else ()
    own, asked, *decisions = await asyncio.gather(
        part("ACLs", log.admin.describe_acls(AclFilter(principal=principal or None))),
        _asked(visit),
        *(
            part(operation, log.admin.explain_authorization(principal, operation, "Cluster"))
            for operation in operations
        ),
    )
    return {
        "principal": principal,
        "is_disabled": isinstance(own, SecurityDisabled),
        "error": "" if not isinstance(own, QuorumlogError) else str(own),
        "own": () if isinstance(own, QuorumlogError) or not principal else own,
        "rights": list(zip(operations, decisions, strict=True)),
        "asked": asked,
        "question": {
            "principal": visit.query.get("principal") or principal or "User:",
            "operation": visit.query.get("operation", ""),
            "resource_type": visit.query.get("resource_type", ""),
            "resource": visit.query.get("resource", ""),
            "host": visit.query.get("host") or "*",
        },
        **_choices(),
    }


async def _asked(visit: Visit) -> AuthorizationDecision | QuorumlogError | None:
    """Return the decision that the query asks for, None without a question."""
    query = visit.query
    if not query.get("principal"):
        return None
    log = await visit.log()
    kind = query.get("resource_type", "")
    return await part(
        "decision",
        log.admin.explain_authorization(
            query["principal"],
            query.get("operation", ""),
            kind,
            CLUSTER if kind == "Cluster" else query.get("resource", ""),
            host=query.get("host") or "*",
        ),
    )


async def _is_without_authorizer(visit: Visit) -> bool:
    """Return True if the brokers have no authorizer."""
    log = await visit.log()
    own = await part("ACLs", log.admin.describe_acls(AclFilter(principal="User:")))
    return isinstance(own, SecurityDisabled)


def _choices() -> Values:
    return {"operations": EVERY_OPERATION, "kinds": tuple(OPERATIONS)}


# --- users ---------------------------------------------------------------------------------------


async def load_users(visit: Visit) -> Values:
    """Read the users that have a password."""
    log = await visit.log()
    found = part_of(
        await log.admin.describe_users(),
        path="/access/users",
        query=visit.query,
        text=lambda user: user.name,
        columns={"name": lambda user: user.name},
    )
    return {"users": found, "is_disabled": await _is_without_authorizer(visit)}


async def load_user(visit: Visit) -> Values:
    """Return the user of the query; raise ResourceNotFound."""
    name = visit.query.get("user", "")
    log = await visit.log()
    for user in await log.admin.describe_users():
        if user.name == name:
            return {
                "user_name": name,
                "found": user,
                "mechanisms": MECHANISMS,
                "is_disabled": False,
            }
    raise ResourceNotFound(f"user {name[:80]!r} has no password")


async def load_new_user(visit: Visit) -> Values:
    """Return the mechanisms of a new user."""
    is_disabled = await _is_without_authorizer(visit)
    return {
        "user_name": "",
        "found": None,
        "mechanisms": MECHANISMS,
        "is_disabled": is_disabled,
    }


async def create_user(visit: Visit, form: Form) -> str:
    """Create a user with a password."""
    name = form.exact("name")
    if not name.strip():
        raise InvalidRequest("the user has no name; enter one")
    log = await visit.log()
    if any(user.name == name for user in await log.admin.describe_users()):
        raise InvalidRequest(f"user {name} exists; change the password of the user instead")
    await _set_password(visit, name, form)
    visit.session.notice = f"Created user {name}."
    return "/access/users"


async def change_password(visit: Visit, form: Form) -> str:
    """Change the password of a user."""
    name = str((await load_user(visit))["user_name"])
    await _set_password(visit, name, form)
    visit.session.notice = f"Changed the password of user {name}."
    return "/access/users"


async def _set_password(visit: Visit, name: str, form: Form) -> None:
    password = form.exact("password")
    if not password:
        raise InvalidRequest("the password is empty; enter one")
    if password != form.exact("repeated"):
        raise InvalidRequest("the two passwords differ; enter the same password twice")
    mechanisms = [each for each in MECHANISMS if form.is_checked(each)]
    log = await visit.log()
    await log.admin.set_password(name, password, mechanisms=mechanisms)


async def delete_user(visit: Visit, form: Form) -> str:
    """Delete the passwords of a user."""
    user = (await load_user(visit))["found"]
    form.confirm(visible(user.name))
    log = await visit.log()
    await log.admin.delete_user(user.name, mechanisms=list(user.iterations))
    visit.session.notice = f"Deleted user {user.name}. ACLs of the user stay."
    return "/access/users"


# --- ACLs ----------------------------------------------------------------------------------------


async def load_acls(visit: Visit) -> Values:
    """Read the ACLs of the selected resource type; without an authorizer there are none."""
    log = await visit.log()
    kind = visit.query.get("kind", "")
    condition = AclFilter(resource_type=kind if kind in OPERATIONS else None)
    acls: Sequence[Acl] = ()
    is_disabled = False
    try:
        acls = await log.admin.describe_acls(condition)
    except SecurityDisabled:
        is_disabled = True
    found = part_of(
        acls,
        path="/access/acls",
        query=visit.query,
        text=lambda acl: " ".join(_fields(acl).values()),
        columns={
            "principal": lambda acl: (acl.principal, acl.resource_type, acl.resource),
            "resource": lambda acl: (acl.resource_type, acl.resource, acl.principal),
            "permission": lambda acl: (acl.permission, acl.principal, acl.resource),
        },
    )
    return {
        "acls": found,
        "kind": kind,
        "is_disabled": is_disabled,
        "removal_path": _removal_path,
        **_choices(),
    }


def _fields(acl: Acl) -> dict[str, str]:
    return {name: str(getattr(acl, name)) for name in FIELDS}


def _removal_path(acl: Acl) -> str:
    return f"/access/acls/remove?{urlencode(_fields(acl))}"


async def load_new_acl(visit: Visit) -> Values:
    """Return the choices of the form."""
    return {"is_disabled": await _is_without_authorizer(visit), **_choices()}


async def create_acl(visit: Visit, form: Form) -> str:
    """Create an ACL."""
    kind, operation = form.text("resource_type"), form.text("operation")
    supported = (*OPERATIONS.get(kind, ()), "All")
    if operation not in supported:
        raise InvalidRequest(
            f"operation {operation[:40]!r}: a {kind[:40]} does not support it; give one of"
            f" {', '.join(supported)}"
        )
    acl = Acl(
        principal=form.text("principal"),
        operation=operation,
        resource_type=kind,
        resource=CLUSTER if kind == "Cluster" else form.text("resource"),
        pattern=form.text("pattern") or "Literal",
        permission=form.text("permission"),
        host=form.text("host") or "*",
    )
    log = await visit.log()
    await log.admin.create_acls([acl])
    visit.session.notice = f"Created the ACL: {acl_text(acl)}."
    return "/access/acls"


async def load_acl(visit: Visit) -> Values:
    """Return the ACL of the query; raise ResourceNotFound unless exactly this one exists."""
    given = {name: visit.query.get(name, "") for name in FIELDS}
    log = await visit.log()
    condition = AclFilter(principal=given["principal"], resource=given["resource"])
    for acl in await log.admin.describe_acls(condition):
        if _fields(acl) == given:
            return {"acl": acl, "text": acl_text(acl)}
    raise ResourceNotFound("there is no such ACL; it may have been removed")


async def remove_acl(visit: Visit, form: Form) -> str:
    """Remove one ACL."""
    acl = (await load_acl(visit))["acl"]
    form.confirm(visible(acl.principal))
    log = await visit.log()
    await log.admin.delete_acls(AclFilter(**_fields(acl)))
    visit.session.notice = f"Removed the ACL: {acl_text(acl)}."
    return "/access/acls"


def acl_text(acl: Acl) -> str:
    """Return an ACL in one line."""
    prefix = "beginning with " if acl.pattern == "Prefixed" else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return (
        f"{acl.permission} {acl.principal} {acl.operation} on {acl.resource_type}"
        f" {prefix}{acl.resource}{host}"
    )


# --- quotas --------------------------------------------------------------------------------------


async def load_quotas(visit: Visit) -> Values:
    """Read all quotas."""
    log = await visit.log()
    found = part_of(
        await log.admin.describe_quotas(),
        path="/access/quotas",
        query=visit.query,
        text=lambda quotas: entity_text(quotas.entity),
        columns={"entity": lambda quotas: entity_text(quotas.entity)},
    )
    return {"quotas": found, "entity_text": entity_text, "alter_path": _alter_path}


def entity_text(entity: QuotaEntity) -> str:
    """Return an entity as "user alice, the default client id"."""
    nouns = {"client_id": "client id"}
    parts = [(nouns.get(kind, kind), name) for kind, name in entity.items()]
    return ", ".join(
        f"the default {noun}" if name is None else f"{noun} {name}" for noun, name in parts
    )


def _alter_path(quotas: ClientQuotas) -> str:
    parts = {
        (f"default_{kind}" if name is None else kind): "1" if name is None else name
        for kind, name in quotas.entity.items()
    }
    return f"/access/quotas/alter?{urlencode(parts)}"


def _entity(fields: Mapping[str, str]) -> dict[str, str | None]:
    """Return the entity of form fields or parameters; raise InvalidRequest for none."""
    entity: dict[str, str | None] = {}
    for kind in ("user", "client_id"):
        if fields.get(f"default_{kind}"):
            entity[kind] = None
        elif fields.get(kind):
            entity[kind] = fields[kind]
    if not entity:
        raise InvalidRequest("no entity is named; give a user, a client id, or a default")
    return entity


async def load_quota(visit: Visit) -> Values:
    """Read the quotas of the entity of the query; a form without an entity asks for it."""
    if not visit.query:
        return {"entity": None, "quotas": {}, "entity_text": entity_text, "rate_text": rate_text}
    entity = _entity(visit.query)
    log = await visit.log()
    found = await log.admin.describe_quotas(entity, strict=True)
    quotas = dict(found[0].quotas) if found else {}
    return {
        "entity": entity,
        "quotas": quotas,
        "entity_text": entity_text,
        "rate_text": rate_text,
    }


def rate_text(rate: float) -> str:
    """Return a rate in bytes for its field: "1MiB"."""
    return quantity_text(int(rate), "bytes")


async def alter_quota(visit: Visit, form: Form) -> str:
    """Set the quotas of an entity; an empty field removes its quota."""
    entity = _entity(visit.query or form.fields)
    log = await visit.log()
    found = await log.admin.describe_quotas(entity, strict=True)
    present = dict(found[0].quotas) if found else {}
    is_removal = form.is_checked("remove")
    given = {} if is_removal else {key: form.text(key) for key in (*RATES, SHARE) if form.text(key)}
    quotas = {key: _quota(key, text) for key, text in given.items()}
    await log.admin.alter_quotas(
        entity, quotas, delete=[key for key in present if key not in quotas]
    )
    verb = "Set" if quotas else "Removed"
    visit.session.notice = f"{verb} the quotas of {entity_text(entity)}."
    return "/access/quotas"


def _quota(key: str, text: str) -> float:
    try:
        value = float(parse_quantity(text, "bytes")) if key in RATES else float(text)
    except ValueError as error:
        remedy = str(error) if key in RATES else "give a number above 0"
        raise InvalidRequest(f"{key} is {text[:40]!r}; {remedy}") from None
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequest(f"{key} is {text[:40]!r}; give a number above 0")
    return value


RIGHTS: Final = Page(
    path="/access", section="access", title="Access", template="access.html", load=load_rights
)
USERS: Final = Page(
    path="/access/users", section="access", title="Users", template="users.html", load=load_users
)
ACLS: Final = Page(
    path="/access/acls", section="access", title="ACLs", template="acls.html", load=load_acls
)
QUOTAS: Final = Page(
    path="/access/quotas",
    section="access",
    title="Quotas",
    template="quotas.html",
    load=load_quotas,
)


def _form_page(
    path: str, title: str, template: str, load: Callable[[Visit], Awaitable[Values]]
) -> Page:
    return Page(
        path=f"/access/{path}",
        section="access",
        title=title,
        template=template,
        load=load,
        is_live=False,
    )


NEW_USER: Final = _form_page("users/new", "Create a user", "user.html", load_new_user)
PASSWORD: Final = _form_page("users/password", "Change the password", "user.html", load_user)
DELETE_USER: Final = _form_page("users/delete", "Delete a user", "user_delete.html", load_user)
NEW_ACL: Final = _form_page("acls/new", "Create an ACL", "acl_new.html", load_new_acl)
REMOVE_ACL: Final = _form_page("acls/remove", "Remove an ACL", "acl_remove.html", load_acl)
ALTER_QUOTA: Final = _form_page("quotas/alter", "Alter quotas", "quota.html", load_quota)
PAGES: Final = (
    RIGHTS,
    USERS,
    ACLS,
    QUOTAS,
    NEW_USER,
    PASSWORD,
    DELETE_USER,
    NEW_ACL,
    REMOVE_ACL,
    ALTER_QUOTA,
)
CHANGES: Final = (
    PageChange(page=NEW_USER, act=create_user),
    PageChange(page=PASSWORD, act=change_password),
    PageChange(page=DELETE_USER, act=delete_user),
    PageChange(page=NEW_ACL, act=create_acl),
    PageChange(page=REMOVE_ACL, act=remove_acl),
    PageChange(page=ALTER_QUOTA, act=alter_quota),
)
