"""DeleteTopics: delete topics with their records, each with its own result.

Since version 6 a topic is named by name or by id, never by both (KIP-516).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....errors import InvalidRequest, QuorumlogError
from ....ids import TopicId
from ....metadata import DeleteTopic
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..authorized_operations import describes
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import outcomes, repeated, wait_applied, with_timeout


@dataclass(frozen=True, slots=True)
class Named:
    """A topic as the request names it."""

    name: str | None
    topic_id: bytes  # empty if not given

    @property
    def answers(self) -> Fields:
        """The fields that name the topic in its result."""
        return {"name": self.name, "topic_id": self.topic_id}


async def delete_topics(broker: BrokerContext, call: Call) -> Answer:
    """Delete each topic that is named once."""
    body = call.body
    context = with_timeout(call, body.timeout)
    wanted = _read(body)
    image = broker.image
    meant = {each: _meant(broker, call, each) for each in wanted}
    twice = repeated(meant[each] for each in wanted)

    async def delete(named: Named) -> Fields:
        if meant[named] in twice:
            raise InvalidRequest("topic: named twice in the request; name each topic once")
        if bool(named.name) == bool(named.topic_id):
            raise InvalidRequest("topic: give either its name or its id")
        command = DeleteTopic(
            name=named.name or "", topic_id=TopicId(named.topic_id) if named.topic_id else None
        )
        submitted = await broker.api.topics.delete(command, context)
        await wait_applied(broker, submitted.offset, context)
        topic_id = submitted.reply.topic_id
        topic = image.topic_of_id(topic_id)
        name = named.name if topic is None else topic.name
        return {"name": name, "topic_id": topic_id}

    named = list(meant)
    results = await outcomes(broker, named, delete, context=context)
    responses = (_result(*each) for each in zip(named, results, strict=True))
    return await encode_if_large(broker, call, {"responses": responses}, elements=len(named))


def _read(body: Any) -> Sequence[Named]:
    names = getattr(body, "topic_names", None)
    if names is not None:
        return [Named(name, b"") for name in names]
    return [
        Named(topic.name, b"" if topic.topic_id is None else topic.topic_id.bytes)
        for topic in body.topics
    ]


def _meant(broker: BrokerContext, call: Call, named: Named) -> str | bytes | None:
    """Return the id of the topic if the client may describe it, otherwise the id or name given."""
    if not named.name or named.topic_id or not describes(broker, call, named.name):
        return named.topic_id or named.name
    topic = broker.image.topic(named.name)
    return named.name if topic is None else topic.id


def _result(named: Named, outcome: Fields | QuorumlogError) -> Fields:
    if isinstance(outcome, QuorumlogError):
        return {**named.answers, **error_fields(outcome)}
    return {**outcome, **error_fields(None)}


API: Final = KafkaApi(key=20, name="DeleteTopics", low=1, high=6, flexible=4, handle=delete_topics)
