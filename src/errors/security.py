"""Errors of authentication, authorization and credentials."""

from .base import AdminError, QuorumlogError, RetriableError


class AuthorizationFailed(QuorumlogError):
    """The principal may not do the operation. Ask an administrator for an ACL.

    The message may be an object in place of a text: its `str` is taken when the message is read. A
    request of a client without rights may have thousands of denials, which are sent as numbers.
    """

    def __init__(self, message: object, *, topic: str = "", partition: int | None = None) -> None:
        super().__init__("", topic=topic, partition=partition)
        self._text = message

    @property
    def message(self) -> str:
        """The problem and the remedy."""
        if not isinstance(self._text, str):
            self._text = str(self._text)
        return self._text

    @message.setter
    def message(self, text: str) -> None:
        self._text = text


class TopicAuthorizationFailed(
    AuthorizationFailed, code=29, name="TOPIC_AUTHORIZATION_FAILED", status="PERMISSION_DENIED"
):
    """The principal may not do the operation on the topic, whether or not the topic exists."""


class GroupAuthorizationFailed(
    AuthorizationFailed, code=30, name="GROUP_AUTHORIZATION_FAILED", status="PERMISSION_DENIED"
):
    """The principal may not do the operation on the consumer group."""


class ClusterAuthorizationFailed(
    AuthorizationFailed, code=31, name="CLUSTER_AUTHORIZATION_FAILED", status="PERMISSION_DENIED"
):
    """The principal may not do the operation on the cluster."""


class TransactionalIdAuthorizationFailed(
    AuthorizationFailed,
    code=53,
    name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    status="PERMISSION_DENIED",
):
    """The principal may not do the operation on the transactional id or staged commit."""


class AuthorizationOutdated(
    RetriableError, code=-1, name="AUTHORIZATION_OUTDATED", status="UNAVAILABLE"
):
    """Between nodes: ACLs or credentials changed after a broker authorized the client of a command.
    The broker authorizes it again once it has the metadata up to `metadata_offset`."""

    def __init__(self, message: str, *, metadata_offset: int = -1) -> None:
        super().__init__(message)
        self.metadata_offset = metadata_offset


class SecurityDisabled(AdminError, code=54, name="SECURITY_DISABLED", status="FAILED_PRECONDITION"):
    """The broker has no authorizer, so ACLs have no effect."""


class UnsupportedSaslMechanism(
    QuorumlogError, code=33, name="UNSUPPORTED_SASL_MECHANISM", status="INVALID_ARGUMENT"
):
    """The broker does not offer the mechanism; the message has the offered ones."""


class IllegalSaslState(
    QuorumlogError, code=34, name="ILLEGAL_SASL_STATE", status="FAILED_PRECONDITION"
):
    """A request does not fit the state of the authentication, such as one before it has ended."""


class SaslAuthenticationFailed(
    QuorumlogError, code=58, name="SASL_AUTHENTICATION_FAILED", status="UNAUTHENTICATED"
):
    """The client could not be authenticated. Check the user, the password or the token."""


class ResourceNotFound(AdminError, code=91, name="RESOURCE_NOT_FOUND", status="NOT_FOUND"):
    """The user has no credential of the mechanism."""


class DuplicateResource(AdminError, code=92, name="DUPLICATE_RESOURCE", status="INVALID_ARGUMENT"):
    """A request names a credential more than once. Give each one once."""


class UnacceptableCredential(
    AdminError, code=93, name="UNACCEPTABLE_CREDENTIAL", status="INVALID_ARGUMENT"
):
    """A credential's user name, iterations, salt or keys are not acceptable; the message has the
    limits."""
