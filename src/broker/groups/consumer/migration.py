"""How a group changes its protocol while its members go on: upgrade and downgrade."""

from collections.abc import Callable

from ....metadata.image import MetadataImage
from ..classic import ClassicGroupMachine
from ..config import GroupConfig
from ..decision import Decision, Ticket
from ..requests import ConsumerHeartbeat
from .group import ConsumerGroupMachine


def upgrade(
    classic: ClassicGroupMachine,
    ticket: Ticket,
    request: ConsumerHeartbeat,
    image: MetadataImage,
    *,
    config: GroupConfig,
    draw: Callable[[], str],
    now_ms: int,
) -> tuple[ConsumerGroupMachine | None, Decision]:
    """The answer to a heartbeat of KIP-848 in a classic group (an empty one too).

    A machine: it is the group from now on, and the decision has the records of the change, the
    answers of those who wait in the classic one, and the heartbeat's. None: refused, the decision
    says why (GroupNotFound where the group cannot or must not change), nothing has changed.
    """
    raise NotImplementedError
