"""Typed errors as the text of a page: the failed operation, the reason, the remedy."""

import re
from dataclasses import dataclass

from ..errors import AuthorizationFailed, QuorumlogError, SaslAuthenticationFailed, TransportError


@dataclass(frozen=True, slots=True)
class Failure:
    """An error for people."""

    name: str  # Kafka's name of the error
    message: str  # the problem with its value and limit
    remedy: str
    heading: str  # the kind of the failure in a sentence
    http_status: int  # of a page that consists of the failure

    @property
    def sentence(self) -> str:
        """The message with a capital, unless it begins with a name."""
        first = self.message.partition(" ")[0]
        is_word = first.isalpha() and first.islower()
        return self.message[:1].upper() + self.message[1:] if is_word else self.message

    @property
    def needs_remedy(self) -> bool:
        """True if the message does not have the remedy, as that about an entered value has."""
        return self.http_status != 400


def failure_of(error: QuorumlogError) -> Failure:
    """Return an error's text. The remedy is that of the error table, docs/clients.md#errors."""
    if error.status == "NOT_FOUND":
        heading, http_status = "Not found.", 404
    elif isinstance(error, AuthorizationFailed):
        heading, http_status = "Not permitted.", 403
    elif isinstance(error, SaslAuthenticationFailed):
        heading, http_status = "The credentials are not accepted.", 401
    elif error.retriable or isinstance(error, TransportError):
        heading, http_status = "The cluster does not answer.", 503
    else:
        heading, http_status = "The values cannot be read.", 400
    return Failure(
        name=error.name,
        message=str(error),
        remedy=_remedy(type(error)),
        heading=heading,
        http_status=http_status,
    )


def _remedy(kind: type[QuorumlogError]) -> str:
    """Return the documented meaning and remedy as one line of plain text."""
    text = " ".join((kind.__doc__ or "").split())
    return re.sub(r"`([^`]*)`", r"\1", text)
