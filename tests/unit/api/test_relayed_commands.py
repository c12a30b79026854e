"""Commands of clients whose rights change while a broker forwards them.

The metadata of the broker can be held back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.users import UNCHECKED
from tests.unit.metadata.shell.stack import (
    CALL_MS,
    CLUSTER,
    ONE,
    QUICK,
    Stack,
    run_simulated,
    started,
)

from quorumlog.api.authorizer import Authorizer
from quorumlog.api.metadata_access import MetadataAccess
from quorumlog.api.request_context import RequestContext
from quorumlog.api.topics import TopicAdmin
from quorumlog.errors import (
    AuthorizationOutdated,
    SaslAuthenticationFailed,
    TimedOut,
    TopicAuthorizationFailed,
)
from quorumlog.ids import TopicId
from quorumlog.metadata import (
    AllocateProducerIds,
    AlterScramCredentials,
    CreateAcls,
    CreateTopic,
    DeleteAcls,
    ImageDelta,
)
from quorumlog.metadata.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from quorumlog.metadata.authorization import AuthorizerConfig
from quorumlog.metadata.scram_credentials import ScramMechanism, credential_of_password
from quorumlog.metadata.shell import BrokerSession
from quorumlog.proto import admin_pb2
from quorumlog.proto import controller_pb2 as pb
from quorumlog.runtime import ClientIdentity, Runtime
from quorumlog.services import CONTROLLER_RELAY

MALLORY = ClientIdentity("User:mallory", "10.0.0.1")
COMMAND = CreateTopic(name="m-late", topic_id=TopicId(b"m" * 16))
LEFT_MS = 5_000


class Broker:
    """A broker with an authorizer. mallory may create the topic of COMMAND."""

    def __init__(self, stack: Stack, session: BrokerSession) -> None:
        self.stack = stack
        self.session = session
        self.open = asyncio.Event()  # clear: no metadata is applied
        self.open.set()
        access = MetadataAccess(stack.runtime.clock, stack.publisher)
        access.attach(session)
        authorizer = Authorizer(lambda: access.image, AuthorizerConfig())
        self._topics = TopicAdmin(access, authorizer)

        async def hold(delta: ImageDelta) -> None:
            await self.open.wait()

        stack.publisher.subscribe(hold)

    async def change(self, command: Any) -> None:
        """Execute an administrator's command. Return once it is confirmed."""
        await self.session.submit(command, timeout_ms=CALL_MS, authorized_offset=UNCHECKED)

    def create(self, **properties: Any) -> "asyncio.Task[Any]":
        """Start the command of mallory on the current metadata of the broker."""
        deadline_ms = self.stack.runtime.clock.now_ms() + LEFT_MS
        context = RequestContext(deadline_ms, client=MALLORY, **properties)
        return asyncio.create_task(self._topics.create(COMMAND, context))

    @property
    def is_created(self) -> bool:
        """True if the controller has the topic."""
        return self.stack.metadata.committed_image.topic(COMMAND.name) is not None


@asynccontextmanager
async def broker_with_rights(runtime: Runtime, path: str) -> AsyncIterator[Broker]:
    async with started(runtime, path, QUICK) as stack, stack.session() as session:
        broker = Broker(stack, session)
        await broker.change(CreateAcls(acls=(acl("User:mallory"), acl("User:other"))))
        await stack.until(lambda: stack.publisher.image.acls.count == 2)
        yield broker


def acl(principal: str) -> Acl:
    pattern = ResourcePattern(AclResourceType.TOPIC, "m-", AclPatternType.PREFIXED)
    return Acl(pattern, principal, "*", AclOperation.CREATE, AclPermission.ALLOW)


def remove_right(principal: str) -> DeleteAcls:
    return DeleteAcls(filters=(AclFilter(principal=principal),))


async def refused_once(broker: Broker, creation: "asyncio.Task[Any]") -> None:
    """Return when the creation waits for the broker's metadata."""
    await asyncio.sleep(1)  # virtual; without the refusal the topic exists after a few milliseconds
    assert not creation.done()
    assert not broker.is_created


def test_command_of_a_stale_broker_fails_after_the_right_is_removed() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with broker_with_rights(runtime, path) as broker:
            broker.open.clear()
            await broker.change(remove_right("User:mallory"))
            creation = broker.create()  # authorized: the broker has the ACL
            await refused_once(broker, creation)
            broker.open.set()
            with pytest.raises(TopicAuthorizationFailed):
                await creation
            assert not broker.is_created

    run_simulated(main)


def test_command_of_a_stale_broker_is_executed_if_the_client_kept_its_right() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with broker_with_rights(runtime, path) as broker:
            broker.open.clear()
            await broker.change(remove_right("User:other"))
            creation = broker.create()
            await refused_once(broker, creation)
            broker.open.set()
            await creation
            assert broker.is_created

    run_simulated(main)


def test_command_fails_if_the_user_is_removed_while_it_is_relayed() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with broker_with_rights(runtime, path) as broker:
            key = "mallory", ScramMechanism.SCRAM_SHA_256
            credential = credential_of_password(key[1], "p", salt=b"s" * 16, iterations=4_096)
            await broker.change(AlterScramCredentials(upsertions=((key, credential),)))
            image = broker.stack.publisher
            await broker.stack.until(lambda: key in image.image.scram_credentials)

            def check_session() -> None:
                if key not in image.image.scram_credentials:
                    raise SaslAuthenticationFailed("the session has ended; log in again")

            broker.open.clear()
            await broker.change(AlterScramCredentials(deletions=(key,)))
            creation = broker.create(check_session=check_session)
            await refused_once(broker, creation)
            broker.open.set()
            with pytest.raises(SaslAuthenticationFailed):
                await creation
            assert not broker.is_created

    run_simulated(main)


def test_command_times_out_at_a_broker_that_does_not_get_the_change() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with broker_with_rights(runtime, path) as broker:
            broker.open.clear()
            await broker.change(remove_right("User:mallory"))
            with pytest.raises(TimedOut, match="not executed"):
                await broker.create()
            assert not broker.is_created
            broker.open.set()

    run_simulated(main)


def test_relayed_command_without_an_offset_is_refused_but_not_that_of_a_broker() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with broker_with_rights(runtime, path) as broker:
            stack = broker.stack
            topic = admin_pb2.CreateTopicRequest(name="m-late", topic_id=b"m" * 16)
            request = pb.RelayRequest(cluster_id=CLUSTER, broker_id=ONE, create_topic=topic)
            channel = runtime.network.channel(stack.listener.address)
            with pytest.raises(AuthorizationOutdated) as caught:
                await channel.call(CONTROLLER_RELAY, request, timeout_ms=CALL_MS)
            assert caught.value.metadata_offset == stack.publisher.image.security_offset
            ids = AllocateProducerIds(broker_id=ONE, broker_epoch=broker.session.broker_epoch)
            await broker.session.submit(ids, timeout_ms=CALL_MS)
            internal = CreateTopic(name="__consumer_offsets", topic_id=TopicId(b"i" * 16))
            await broker.session.submit(internal, timeout_ms=CALL_MS)

    run_simulated(main)
