"""Authorization of every operation: the one place where front ends and operations ask for it.

Decisions are made on the newest applied image, and cached for each client until the ACLs of its
principal change. `authorization` in the metadata has the rules.
"""

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..errors import (
    AuthorizationFailed,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from ..metadata import MetadataImage
from ..metadata.acls import (
    CLUSTER_NAME,
    EVERY_PRINCIPAL,
    AclOperation,
    AclResourceType,
    AclTable,
    PrincipalAcls,
    name_of,
)
from ..metadata.authorization import (
    ActingAcls,
    Action,
    AuthorizerConfig,
    CompiledAcls,
    decide_by_acls,
    decide_by_type,
)
from ..runtime import ANONYMOUS_CLIENT, ClientIdentity

DECISIONS_MAX: Final = 200_000
"""The maximum number of cached decisions; at the limit all are dropped."""

CACHED_NAME_MAX: Final = 249
"""The longest name with a cached decision: that of a topic. Longer ones would fill the memory."""

SHOWN_NAME_MAX: Final = 249
"""The longest name in the command of an error: that of a topic."""

_ERRORS: Final[dict[AclResourceType, type[AuthorizationFailed]]] = {
    AclResourceType.TOPIC: TopicAuthorizationFailed,
    AclResourceType.GROUP: GroupAuthorizationFailed,
    AclResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}

_FLAGS: Final[dict[AclResourceType, str]] = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
    AclResourceType.CLUSTER: "--cluster",
}
"""The options of `quorumlog acls add`."""

_USUAL: Final = re.compile(r"[\w.:@/+=%][\w.:@/+=%, -]*", re.ASCII)
"""Names that are shown as words of a command. A client chooses them."""

_Decision = tuple[AclOperation, AclResourceType, str | None]  # None: any resource of the type


@dataclass(slots=True)
class _CachedClient:
    """The decisions for one client, valid while the sets of ACLs are the same objects."""

    table: AclTable
    own: PrincipalAcls
    of_everyone: PrincipalAcls
    decisions: dict[_Decision, bool] = field(default_factory=dict)


class Authorizer:
    """The authorizer of one node. Without a config every action is allowed."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        config: AuthorizerConfig | None = None,
        *,
        denied: Callable[[Action], None] | None = None,
    ) -> None:
        """`image` returns the newest applied image; `denied` is called for each reported denial."""
        self._image = image
        self._config = config
        self._denied = denied
        self._clients: dict[ClientIdentity, _CachedClient] = {}
        self._compiled: dict[str, tuple[PrincipalAcls, CompiledAcls]] = {}
        self._count = 0  # of cached decisions

    @property
    def is_enabled(self) -> bool:
        """True if ACLs decide; False if every action is allowed."""
        return self._config is not None

    def allows(
        self,
        client: ClientIdentity,
        operation: AclOperation,
        kind: AclResourceType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """Return True if the client may do the operation on the resource."""
        if self._config is None or client.is_node:
            return True
        return self._cached(client, (operation, kind, name))

    def allows_any(
        self, client: ClientIdentity, operation: AclOperation, kind: AclResourceType
    ) -> bool:
        """Return True if the client may do the operation on any resource of the type (KIP-679)."""
        if self._config is None or client.is_node:
            return True
        return self._cached(client, (operation, kind, None))

    def describes_group(self, client: ClientIdentity, group: str) -> bool:
        """Return True if lists of groups have the group: the client may describe the cluster, or
        the group."""
        describe = AclOperation.DESCRIBE
        return self.allows(client, describe, AclResourceType.CLUSTER) or self.allows(
            client, describe, AclResourceType.GROUP, group
        )

    def describes_topics(self, client: ClientIdentity) -> Callable[[str], bool] | None:
        """Return the predicate of the topics that the client may describe, by name; None: all."""
        if self._config is None or client.is_node:
            return None
        return lambda name: self.allows(client, AclOperation.DESCRIBE, AclResourceType.TOPIC, name)

    def denial(
        self,
        client: ClientIdentity,
        operation: AclOperation,
        kind: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        any_topic: AclOperation | None = None,
    ) -> AuthorizationFailed | None:
        """Return None if the client may do the operation. Otherwise report the denial, and return
        the error of the resource's type, the same whether or not the resource exists. `any_topic`
        is an operation that is enough on any topic; the caller has checked it."""
        if self.allows(client, operation, kind, name):
            return None
        action = Action(client.principal, client.host, operation, kind, name)
        if self._denied is not None:
            self._denied(action)
        error = _ERRORS.get(kind, ClusterAuthorizationFailed)
        text = _DenialText(action, any_topic)
        return error(text, topic=name if kind is AclResourceType.TOPIC else "")

    def check(
        self,
        client: ClientIdentity,
        operation: AclOperation,
        kind: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        any_topic: AclOperation | None = None,
    ) -> None:
        """Raise the error of `denial` unless the client may do the operation."""
        denial = self.denial(client, operation, kind, name, any_topic=any_topic)
        if denial is not None:
            raise denial

    def check_topic_of_id(self, client: ClientIdentity, operation: AclOperation, name: str) -> None:
        """Raise TopicAuthorizationFailed unless the client may do the operation on a topic that it
        named by id. The error has the topic's name only if the client may describe the topic."""
        kind = AclResourceType.TOPIC
        denial = self.denial(client, operation, kind, name)
        if denial is None:
            return
        if self.allows(client, AclOperation.DESCRIBE, kind, name):
            raise denial
        raise TopicAuthorizationFailed(
            f"{client.principal} from {client.host} is not authorized: {name_of(operation)} the"
            " topic of this id; ask an administrator for an ACL"
        )

    def check_description(self, client: ClientIdentity, title: str, topics: Iterable[str]) -> None:
        """Raise TopicAuthorizationFailed, which names no topic, unless the client may describe all
        topics in the description of a group or the like."""
        describe, kind = AclOperation.DESCRIBE, AclResourceType.TOPIC
        for name in sorted(set(topics)):
            if self.denial(client, describe, kind, name) is not None:
                raise TopicAuthorizationFailed(
                    f"{title}: has topics that {client.principal} from {client.host} may not"
                    " describe; ask an administrator for an ACL"
                )

    def explain(self, action: Action) -> tuple[bool, str]:
        """Return the decision for an action, and its cause as a clause."""
        if self._config is None:
            return True, "the broker has no authorizer"
        table = self._image().acls
        acting = self._acting(table, action.principal)
        verdict = decide_by_acls(table, acting, action, self._config)
        return verdict.is_allowed, verdict.reason(action)

    def authorized_operations(
        self,
        client: ClientIdentity,
        kind: AclResourceType,
        name: str,
        operations: Iterable[AclOperation],
    ) -> int:
        """Return the allowed ones of the operations as a bit set (KIP-430)."""
        return sum(
            1 << operation for operation in operations if self.allows(client, operation, kind, name)
        )

    # --- cache ---------------------------------------------------------------------------------

    def _cached(self, client: ClientIdentity, decision: _Decision) -> bool:
        table = self._image().acls
        cached = self._clients.get(client)
        if cached is None or cached.table is not table:
            cached = self._refreshed(client, cached, table)
        allowed = cached.decisions.get(decision)
        if allowed is None:
            allowed = self._decide(client, decision, table)
            if len(decision[2] or "") <= CACHED_NAME_MAX:
                cached.decisions[decision] = allowed
                self._count += 1
            if self._count >= DECISIONS_MAX:
                self._clients, self._compiled, self._count = {}, {}, 0
        return allowed

    def _refreshed(
        self, client: ClientIdentity, cached: _CachedClient | None, table: AclTable
    ) -> _CachedClient:
        """Return the cached decisions of a client that are valid for a new table."""
        assert self._config is not None
        own, of_everyone = table.acls_of(client.principal), table.acls_of(EVERY_PRINCIPAL)
        if cached is not None:
            is_same = cached.own is own and cached.of_everyone is of_everyone
            if is_same and not self._config.allow_everyone_if_no_acl_found:
                cached.table = table
                return cached
            self._count -= 1 + len(cached.decisions)
        cached = self._clients[client] = _CachedClient(table, own, of_everyone)
        self._count += 1
        return cached

    def _decide(self, client: ClientIdentity, decision: _Decision, table: AclTable) -> bool:
        assert self._config is not None
        operation, kind, name = decision
        acting = self._acting(table, client.principal)
        action = Action(client.principal, client.host, operation, kind, name or "")
        if name is None:
            return decide_by_type(acting, action, self._config)
        return decide_by_acls(table, acting, action, self._config).is_allowed

    def _acting(self, table: AclTable, principal: str) -> ActingAcls:
        return self._compile(table, principal), self._compile(table, EVERY_PRINCIPAL)

    def _compile(self, table: AclTable, principal: str) -> CompiledAcls:
        acls = table.acls_of(principal)
        found = self._compiled.get(principal)
        if found is None or found[0] is not acls:
            found = self._compiled[principal] = (acls, CompiledAcls(acls))
        return found[1]


class _DenialText(NamedTuple):
    """The message of a denial, built when it is read."""

    action: Action
    any_topic: AclOperation | None  # enough on any topic

    def __str__(self) -> str:
        (principal, host, operation, kind, name), any_topic = self
        if any_topic is None:
            remedy = _grant(principal, operation, kind, name)
        else:
            grant = _grant(principal, any_topic, AclResourceType.TOPIC, "TOPIC")
            remedy = f"{name_of(any_topic)} on a topic is enough; {grant}"
        return (
            f"{principal} from {host} is not authorized: {name_of(operation)} {name_of(kind)}"
            f" {name}; {remedy}"
        )


def _grant(principal: str, operation: AclOperation, kind: AclResourceType, name: str) -> str:
    """Return the command that grants an operation, as a clause. Unusual and long names, and clients
    that have not authenticated, have none."""
    flag, names = _FLAGS.get(kind), (principal, name)
    is_usual = all(len(each) <= SHOWN_NAME_MAX and _USUAL.fullmatch(each) for each in names)
    if flag is None or not is_usual or principal == ANONYMOUS_CLIENT.principal:
        return "ask an administrator for an ACL"
    resource = [flag] if kind is AclResourceType.CLUSTER else [flag, name]
    words = ["quorumlog", "acls", "add", principal, name_of(operation), *resource]
    implied = operation is AclOperation.DESCRIBE and kind is AclResourceType.TOPIC
    also = " (Read and Write imply it)" * implied
    return f"grant it{also}: `{shlex.join(words)}`"
