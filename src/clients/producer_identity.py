"""Producer identities in requests and responses."""

from ..ids import ProducerIdentity
from ..proto import transactions_pb2
from .producer.sequences import EPOCH_MAX
from .topology import invalid_response


def identity_message(identity: ProducerIdentity) -> transactions_pb2.ProducerIdentity:
    """Return the message of an identity."""
    return transactions_pb2.ProducerIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def read_identity(message: transactions_pb2.ProducerIdentity) -> ProducerIdentity:
    """Return the identity of a response; raise UnknownServerError for an invalid one."""
    if message.producer_id < 0 or not 0 <= message.producer_epoch <= EPOCH_MAX:
        raise invalid_response(
            f"returned producer id {message.producer_id} with epoch {message.producer_epoch}"
        )
    return ProducerIdentity(message.producer_id, message.producer_epoch)
