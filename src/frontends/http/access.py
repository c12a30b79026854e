"""Access to an HTTP listener beyond loopback: callers authenticate with a password or a token."""

from collections.abc import Callable
from typing import Final

from ...api.authentication.calls import CallAuthentication
from ...api.authorizer import Authorizer
from ...errors import SaslAuthenticationFailed
from ...metadata.acls import AclOperation, AclResourceType
from ...runtime import CallPeer
from .messages import HttpRequest, HttpResponse, sentence

OPEN_PATHS: Final = frozenset({"/health"})
"""Paths that need no authentication: for load balancers and supervisors."""

_CHALLENGE: Final = 'Basic realm="quorumlog", charset="UTF-8"'


class AuthenticatedAccess:
    """Access for users that may describe the cluster, with a password or a token."""

    def __init__(
        self,
        authentication: CallAuthentication,
        authorizer: Authorizer,
        *,
        has_users: Callable[[], bool],
    ) -> None:
        """`has_users` returns True once the metadata, with the users, is loaded."""
        self._authentication = authentication
        self._authorizer = authorizer
        self._has_users = has_users

    async def __call__(self, request: HttpRequest) -> HttpResponse | None:
        """Return the refusal of a request, None for one that is answered."""
        if request.path in OPEN_PATHS:
            return None
        authorization = request.headers.get("authorization", "")
        if not authorization:
            return _unauthenticated("Authentication is required: Basic, or Bearer with a token.")
        if not self._has_users():
            return sentence(503, "The node has not loaded its users yet.", Retry_After="1")
        peer = CallPeer(request.host, None, authorization)
        try:
            session = await self._authentication.authenticate(request.path, peer)
        except SaslAuthenticationFailed as error:
            return _unauthenticated(f"Not authenticated: {error.message}.")
        denial = self._authorizer.denial(
            session.identity, AclOperation.DESCRIBE, AclResourceType.CLUSTER
        )
        return None if denial is None else sentence(403, f"{denial.message}.")


def _unauthenticated(text: str) -> HttpResponse:
    return sentence(401, text, WWW_Authenticate=_CHALLENGE)
