"""The bytes of entries: cheap ones, or real record batches if messages go through protobuf."""

from quorumlog.ids import Epoch, NodeId, Offset
from quorumlog.raftlog.codec import decode_message, encode_message
from quorumlog.raftlog.control_records import LeaderChange, control_batch
from quorumlog.raftlog.log_view import EntryKind
from quorumlog.raftlog.messages import FollowRequest, Message
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.records import Record, encode_batch

NO_RECEIVER = Voter(NodeId(0), b"")  # type: ignore[arg-type]


class Payloads:
    """The batches of a run; each proposal has a different one."""

    def __init__(self, *, is_real: bool) -> None:
        self._is_real = is_real

    def batch(self, number: int, *, base_offset: int, epoch: int, count: int, size: int) -> bytes:
        """Return a proposal's batch of about `size` bytes."""
        if not self._is_real:
            return b"%d@%d" % (number, base_offset) + bytes(size)
        values = [b"%d" % number + bytes(size // count) for _ in range(count)]
        records = [
            Record(offset=0, timestamp_ms=0, key=None, value=value, headers=()) for value in values
        ]
        return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)

    def control(
        self, kind: EntryKind, base_offset: Offset, epoch: Epoch, voters: VoterSet | None
    ) -> bytes:
        """Return a core's control batch."""
        if not self._is_real:
            names = () if voters is None else tuple(voter.node_id for voter in voters)
            return f"{kind} {base_offset} {epoch} {names}".encode()
        control = LeaderChange(NodeId(0), (), ()) if voters is None else voters
        return control_batch(control, base_offset=base_offset, epoch=epoch)

    @staticmethod
    def translate(message: Message) -> Message:
        """Return the message after encoding and decoding."""
        encoded = type(encode_message(message)).FromString(
            encode_message(message).SerializeToString()
        )
        if isinstance(message, FollowRequest):
            return decode_message(
                encoded,
                sender=message.sender,
                receiver=NO_RECEIVER,
                receiver_address=message.receiver_address,
            )
        translated = decode_message(encoded, sender=message.sender, receiver=message.receiver)
        assert translated == message, f"{message} came back as {translated}"
        return translated
