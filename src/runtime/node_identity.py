"""Identities of the nodes of a cluster, by the certificates of their internal connections.

A node's certificate has a URI with the cluster, the node id and the roles. A node may act only
under its own id, and without the role controller it neither votes nor leads.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final

from ..errors import ClusterAuthorizationFailed, InvalidConfig
from .ports import ANONYMOUS_CLIENT, ClientIdentity, PeerCertificate

BROKER_ROLE: Final = "broker"
CONTROLLER_ROLE: Final = "controller"
ROLES: Final = (BROKER_ROLE, CONTROLLER_ROLE)
_PREFIX: Final = "Node:"
_CLUSTER_ID: Final = re.compile("[A-Za-z0-9_-]+")
_URI: Final = re.compile(
    r"quorumlog://(?P<cluster>[A-Za-z0-9_-]+)/node/(?P<node>0|[1-9][0-9]{0,9})"
    r"\?roles=(?P<roles>[a-z]+(?:\+[a-z]+)*)"
)


def node_uri(cluster_id: str, node_id: int, roles: Sequence[str]) -> str:
    """Return the URI that names a node in its certificate. Raise InvalidConfig for a cluster id
    that a URI cannot have."""
    if not _CLUSTER_ID.fullmatch(cluster_id):
        raise InvalidConfig(f"cluster id: {cluster_id!r}; give letters, digits, '_' and '-'")
    return f"quorumlog://{cluster_id}/node/{node_id}?roles={'+'.join(sorted(roles))}"


class NodeIdentities:
    """The nodes that may connect to a node of one cluster."""

    def __init__(self, cluster_id: str, *, are_certified: bool) -> None:
        """`are_certified`: a connection without a certificate is refused; otherwise it is one of
        any node."""
        self._cluster_id = cluster_id
        self._are_certified = are_certified
        self.allowed: Collection[int] | None = None
        """The ids of the nodes that may connect; None: each one with a certificate."""

    def identify(self, certificate: PeerCertificate | None, host: str) -> ClientIdentity:
        """Return the node with this certificate. Raise ClusterAuthorizationFailed if it has none
        and needs one, for a certificate of another cluster or of no node, and for a node that is
        not allowed."""
        if certificate is None:
            if self._are_certified:
                raise ClusterAuthorizationFailed(
                    f"{host}: no certificate; only nodes of the cluster connect to this listener"
                )
            return ClientIdentity(_PREFIX, host)
        node = self._named(certificate, host)
        if not self.admits(node):
            raise ClusterAuthorizationFailed(
                f"{host}: {node.principal} is not in the file of internal.allowed.nodes.file"
            )
        return node

    def _named(self, certificate: PeerCertificate, host: str) -> ClientIdentity:
        """Return the node of this cluster that a certificate names."""
        matches = [found for uri in certificate.uris if (found := _URI.fullmatch(uri))]
        if len(matches) != 1:
            raise ClusterAuthorizationFailed(
                f"{host}: the certificate of {certificate.subject!r} names no node; only nodes of"
                " the cluster connect to this listener"
            )
        cluster_id, node_id, roles = matches[0].group("cluster", "node", "roles")
        if cluster_id != self._cluster_id:
            raise ClusterAuthorizationFailed(
                f"{host}: the certificate is for node {node_id} of cluster {cluster_id!r}, this is"
                f" cluster {self._cluster_id!r}"
            )
        return ClientIdentity(f"{_PREFIX}{node_id}", host, tuple(roles.split("+")))

    def check_own(self, certificate: PeerCertificate, node_id: int, roles: Collection[str]) -> None:
        """Raise InvalidConfig unless a certificate is that of this node with its roles."""
        try:
            named = self._named(certificate, "this node")
            check_sender(named, node_id)
            for role in roles:
                check_role(named, role)
        except ClusterAuthorizationFailed as error:
            raise InvalidConfig(
                f"internal.security: the certificate of {certificate.subject!r} is not for node"
                f" {node_id} of cluster {self._cluster_id!r} with the roles {', '.join(roles)};"
                f" issue one with `quorumlog tls issue --node {node_id} --cluster-id"
                f" {self._cluster_id}`: {error}"
            ) from error

    def admits(self, node: ClientIdentity) -> bool:
        """Return True if an identified node is still allowed."""
        node_id = node.principal.removeprefix(_PREFIX)
        return not node_id or self.allowed is None or int(node_id) in self.allowed


def check_sender(sender: ClientIdentity, node_id: int, *, role: str = "") -> None:
    """Raise ClusterAuthorizationFailed if the sender of a message is not the node that the message
    names, or lacks the role that it needs. Without certificates every node may name any."""
    check_role(sender, role)
    claimed = sender.principal.removeprefix(_PREFIX)
    if sender.is_node and claimed not in ("", str(node_id)):
        raise ClusterAuthorizationFailed(
            f"node {claimed} from {sender.host}: it sent a message of node {node_id}; a node sends"
            " messages under the id of its certificate only"
        )


def check_role(sender: ClientIdentity, role: str) -> None:
    """Raise ClusterAuthorizationFailed if the sender of a message is no node, or lacks the role
    that the message needs; "": none."""
    if sender == ANONYMOUS_CLIENT:
        return  # a listener without identities: a node has none, the user of a library may
    if not sender.is_node:
        raise ClusterAuthorizationFailed(f"{sender.principal}: not a node of the cluster")
    if role and sender.roles and role not in sender.roles:
        raise ClusterAuthorizationFailed(
            f"{sender.principal} from {sender.host}: its certificate lacks the role {role}; issue"
            " one with that role"
        )
