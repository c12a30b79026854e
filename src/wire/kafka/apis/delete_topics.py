"""DeleteTopics: deletes topics with their records; each stands for itself.

Since version 6 a topic is named by its name or by its id, never by both (KIP-516).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....errors import InvalidRequest, QuorumlogError
from ....metadata import MetadataImage
from ....proto import admin_pb2 as pb
from ..api import Answer, Api, Call, Door, Fields
from ..large_answers import encoded
from ..messages import error_fields
from ..parts import applied, outcomes, repeated, within


@dataclass(frozen=True, slots=True)
class Named:
    """A topic as the request names it."""

    name: str | None
    topic_id: bytes  # empty: none is given

    @property
    def answers(self) -> Fields:
        """How its result names it."""
        return {"name": self.name, "topic_id": self.topic_id}


async def delete_topics(door: Door, call: Call) -> Answer:
    """Delete each topic that is named once, in one way."""
    body = call.body
    context = within(call, body.timeout)
    wanted = _read(body)
    image = door.image
    twice = repeated(_meant(image, named) for named in wanted)

    async def delete(named: Named) -> Fields:
        if _meant(image, named) in twice:
            raise InvalidRequest("the request names this topic twice; name each once")
        if bool(named.name) == bool(named.topic_id):
            raise InvalidRequest("give a topic's name or its id, one of them")
        request = pb.DeleteTopicRequest(name=named.name, topic_id=named.topic_id)
        response = await door.admin.delete_topic(request, context)
        await applied(door, response.metadata_offset, context)
        topic = image.topic_of_id(response.topic_id)
        name = named.name if topic is None else topic.name
        return {"name": name, "topic_id": response.topic_id}

    named = list(dict.fromkeys(wanted))
    results = await outcomes(door, named, delete, context=context)
    told = (_result(*each) for each in zip(named, results, strict=True))
    return await encoded(door, call, {"responses": told}, elements=len(named))


def _read(body: Any) -> Sequence[Named]:
    names = getattr(body, "topic_names", None)
    if names is not None:
        return [Named(name, b"") for name in names]
    return [
        Named(topic.name, b"" if topic.topic_id is None else topic.topic_id.bytes)
        for topic in body.topics
    ]


def _meant(image: MetadataImage, named: Named) -> str | bytes | None:
    """Return the id of the topic that is meant, as far as it is known here."""
    topic = image.topic(named.name) if named.name and not named.topic_id else None
    return topic.id if topic is not None else named.topic_id or named.name


def _result(named: Named, outcome: Fields | QuorumlogError) -> Fields:
    if isinstance(outcome, QuorumlogError):
        return {**named.answers, **error_fields(outcome)}
    return {**outcome, **error_fields(None)}


API: Final = Api(key=20, name="DeleteTopics", low=1, high=6, flexible=4, handle=delete_topics)
