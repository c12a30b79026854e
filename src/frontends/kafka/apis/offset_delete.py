"""OffsetDelete: delete a group's offsets of partitions without a subscribed member (KIP-496)."""

from ....api.audit import recorded
from ....broker.groups.requests import DeleteOffsets
from ....errors import QuorumlogError, UnknownTopicOrPartition
from ....metadata.acls import AclOperation
from ....runtime.steps import step_counter
from ..api import ANSWER_MS_MAX, Answer, BrokerContext, Call
from ..encoding_offload import encode_if_large
from ..error_codes import code_of, group_code
from ..group_calls import check_group_request, check_topics, named_topic
from ..item_results import PARTS_A_STEP, by_topic, slices


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Delete the offsets of existing partitions; the others have errors of their own."""
    codes: dict[tuple[str, int], int] = {}
    wanted: dict[tuple[str, int], None] = {}
    take_turn = step_counter(PARTS_A_STEP)
    for part in call.body.topics:
        await take_turn(1 + len(part.partitions))
        topic = named_topic(broker, call, part, AclOperation.READ)
        for one in part.partitions:
            place = (part.name, one.partition_index)
            if topic.image is None:
                codes[place] = code_of(topic.missing())
                continue
            codes[place] = UnknownTopicOrPartition.code
            if one.partition_index in topic.image.partitions:
                wanted[place] = None
    for places in slices(list(wanted)):
        request = DeleteOffsets(group=call.body.group_id, partitions=tuple(places))
        try:
            check_topics(broker, call, (topic for topic, _ in places))
            check_group_request(broker, call, request)
            with recorded(broker.api.metadata.audit, call.client.identity, request):
                outcome = await broker.groups.ask(
                    request, deadline_ms=call.began_ms + ANSWER_MS_MAX
                )
        except QuorumlogError as error:
            return {"error_code": group_code(error), "topics": ()}
        codes.update(zip(places, map(code_of, outcome.errors), strict=True))
    results = (
        (topic, {"partition_index": index, "error_code": code})
        for (topic, index), code in codes.items()
    )
    answer = {
        "error_code": 0,
        "topics": by_topic(results, topic_as="name", partitions_as="partitions"),
    }
    return await encode_if_large(broker, call, answer, elements=len(codes))
