"""SASL on the Kafka listener: requests before authentication, and each kind of failure."""

import asyncio
from base64 import b64decode
from typing import Final

import pytest
import scramp
from tests.kit.kafka_client import ConnectionEnded, connect, connected
from tests.kit.kafka_node import KafkaNode, run_on_kafka_node
from tests.kit.users import SHA_512, remove_user, set_password
from tests.kit.waits import wait_until

from quorumlog.errors import (
    ClusterAuthorizationFailed,
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.authentication import REAUTHENTICATION_INTERVAL_MS
from quorumlog.records import Record, encode_batch
from quorumlog.runtime.client_bounds import LINES_A_SECOND_MAX

from .admin_calls import create_topic
from .named_requests import long_fetch
from .produce_fetch import produce
from .sasl_client import (
    AUTHENTICATE,
    DESCRIBE_CLUSTER,
    HANDSHAKE,
    PASSWORD,
    SASL,
    begin,
    log_in,
    may_describe,
    sasl_address,
    step,
)

FETCH, METADATA = 1, 3


def test_user_logs_in_with_either_hash_and_acts_under_that_name() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "admin", PASSWORD)
        await set_password(kafka.node, "alice", PASSWORD, SHA_512)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            answer = await log_in(client, "admin", PASSWORD)
            assert answer.error_code.value == 0
            assert await may_describe(client)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            answer = await log_in(client, "alice", PASSWORD, "SCRAM-SHA-512")
            assert answer.error_code.value == 0
            names = await client.ask(29, 3, **_EVERY_ACL)
            assert names.error_code.value == ClusterAuthorizationFailed.code

    run_on_kafka_node(main, "/node", **SASL)


_EVERY_ACL: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def test_wrong_password_and_unknown_user_are_refused_alike_after_a_delay() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "alice", PASSWORD)
        texts = []
        for user in ("alice", "mallory"):
            async with connected(kafka.runtime, sasl_address(kafka)) as client:
                began_ms = kafka.runtime.clock.now_ms()
                answer = await log_in(client, user, "wrong")
                assert kafka.runtime.clock.now_ms() - began_ms >= 100
                assert answer.error_code.value == SaslAuthenticationFailed.code
                texts.append(answer.error_message)
                assert await client.ended() is None
        assert texts[0] == texts[1]

    run_on_kafka_node(main, "/node", **SASL)


def test_delayed_authentication_holds_no_request_memory() -> None:
    async def main(kafka: KafkaNode) -> None:
        server, address = kafka.node.parts.kafka, sasl_address(kafka)
        assert server is not None
        async with (
            connected(kafka.runtime, address) as refused,
            connected(kafka.runtime, address) as next_one,
        ):
            await begin(refused)
            refused.send(AUTHENTICATE, 2, auth_bytes=b"x" * 20_000)
            await wait_until(lambda: server.figures.open == 1 and not server.memory.taken)
            next_one.send(HANDSHAKE, 1, mechanism="x" * 20_000)
            await wait_until(lambda: server.figures.open == 2 and not server.memory.taken)

    run_on_kafka_node(main, "/node", **SASL, connection_failed_authentication_delay_ms=10_000)


def test_unknown_user_gets_the_same_salt_every_time() -> None:
    async def main(kafka: KafkaNode) -> None:
        salts = []
        for _ in range(2):
            async with connected(kafka.runtime, sasl_address(kafka)) as client:
                await begin(client)
                answer = await step(client, "n,,n=mallory,r=abcdefghijklmnopqrst")
                salts.append(answer.auth_bytes.decode().split(",")[1:])
        assert salts[0] == salts[1]
        assert salts[0][0].startswith("s=")

    run_on_kafka_node(main, "/node", **SASL)


def test_no_other_request_is_answered_before_the_login() -> None:
    """Each offered key except those of the login ends the connection without a response."""

    async def main(kafka: KafkaNode) -> None:
        for api in APIS:
            if api.key in (HANDSHAKE, AUTHENTICATE, 18):
                continue
            async with connected(kafka.runtime, sasl_address(kafka)) as client:
                client.send_body(api.key, api.high, bytes(64))
                await client.ended()
                assert client.has_ended, api.name
        assert kafka.node.parts.kafka is not None
        ended = kafka.node.parts.kafka.figures.listeners["SASL_PLAINTEXT"].ended
        assert ended == {"unauthenticated": len(APIS) - 3}

    run_on_kafka_node(main, "/node", **SASL)


def test_request_behind_a_failed_login_in_one_packet_is_not_started() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "alice", PASSWORD)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            await begin(client)
            await step(client, "n,,n=alice,r=abcdefghijklmnopqrst")
            client.send(AUTHENTICATE, 2, auth_bytes=b"c=biws,r=abc,p=AAAA")
            client.send(18, 3, client_software_name="test", client_software_version="1")
            _, answer = await client.answer(AUTHENTICATE, 2)
            assert answer.error_code.value == SaslAuthenticationFailed.code
            await client.ended()

    run_on_kafka_node(main, "/node", **SASL)


def test_steps_out_of_order_end_the_connection() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "alice", PASSWORD)
        address = sasl_address(kafka)
        async with connected(kafka.runtime, address) as client:  # no handshake
            answer = await step(client, "n,,n=alice,r=abcdefghijklmnopqrst")
            assert answer.error_code.value == IllegalSaslState.code
            await client.ended()
        async with connected(kafka.runtime, address) as client:  # another mechanism within
            await begin(client)
            await step(client, "n,,n=alice,r=abcdefghijklmnopqrst")
            answer = await begin(client, "SCRAM-SHA-512")
            assert answer.error_code.value == IllegalSaslState.code
            await client.ended()
        for mechanism in ("PLAIN", "OAUTHBEARER", "GSSAPI", ""):  # the first two need TLS
            async with connected(kafka.runtime, address) as client:
                answer = await begin(client, mechanism)
                assert answer.error_code.value == UnsupportedSaslMechanism.code
                assert list(answer.mechanisms) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
                await client.ended()
        answer = await begin(kafka.client)  # a listener without SASL
        assert answer.error_code.value == IllegalSaslState.code

    run_on_kafka_node(main, "/node", **SASL)


def test_malformed_and_replayed_messages_of_scram_are_refused() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "alice", PASSWORD)
        address = sasl_address(kafka)
        for message in (
            b"",
            b"\xff\xfe",
            b"n,,",
            b"p=tls-unique,,n=alice,r=x",
            b"n,a=bob,n=alice,r=x",
        ):
            async with connected(kafka.runtime, address) as client:
                await begin(client)
                answer = await step(client, message)
                assert answer.error_code.value == SaslAuthenticationFailed.code, message
                await client.ended()
        exchange = scramp.ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD, c_nonce="n" * 24)
        async with connected(kafka.runtime, address) as client:
            await begin(client)
            opening = exchange.get_client_first()
            first = await step(client, opening)
            exchange.set_server_first(first.auth_bytes.decode())
            final = exchange.get_client_final()
            assert (await step(client, final)).error_code.value == 0
        async with connected(kafka.runtime, address) as client:  # the proof of the other login
            await begin(client)
            await step(client, opening)
            answer = await step(client, final)
            assert answer.error_code.value == SaslAuthenticationFailed.code

    run_on_kafka_node(main, "/node", **SASL)


def test_session_ends_unless_the_client_authenticates_again() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "admin", PASSWORD)
        await set_password(kafka.node, "alice", PASSWORD)
        address = sasl_address(kafka)
        async with connected(kafka.runtime, address) as client:
            answer = await log_in(client, "admin", PASSWORD)
            assert answer.session_lifetime.total_seconds() == 5
            await asyncio.sleep(4)
            await log_in(client, "admin", PASSWORD)
            await asyncio.sleep(4)
            assert await may_describe(client)
            await asyncio.sleep(2)
            client.send_body(METADATA, 12, bytes(16))
            await client.ended()
            assert client.has_ended
        async with connected(kafka.runtime, address) as client:  # as another user
            await log_in(client, "admin", PASSWORD)
            answer = await log_in(client, "alice", PASSWORD)
            assert answer.error_code.value == SaslAuthenticationFailed.code
            await client.ended()

    run_on_kafka_node(main, "/node", **SASL, connections_max_reauth_ms=5_000)


def test_client_authenticates_again_at_most_once_a_second() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "admin", PASSWORD)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            for pause_ms in (0, REAUTHENTICATION_INTERVAL_MS, 0):
                assert not (await log_in(client, "admin", PASSWORD)).error_code.value
                await asyncio.sleep(pause_ms / 1_000)
            answer = await begin(client)
            assert answer.error_code.value == IllegalSaslState.code
            await client.ended()

    run_on_kafka_node(main, "/node", **SASL)


def test_request_that_waits_for_an_earlier_one_does_not_begin_after_the_session() -> None:
    async def main(kafka: KafkaNode) -> None:
        await create_topic(kafka.channel, "quiet")
        await set_password(kafka.node, "admin", PASSWORD)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            await log_in(client, "admin", PASSWORD)
            client.send_body(FETCH, 12, long_fetch("quiet"))
            client.send(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
            with pytest.raises(ConnectionEnded):
                await client.frame()
        server = kafka.node.parts.kafka
        assert server is not None
        assert server.figures.listeners["SASL_PLAINTEXT"].ended == {"unauthenticated": 1}

    run_on_kafka_node(main, "/node", **SASL, connections_max_reauth_ms=5_000)


@pytest.mark.parametrize("is_usual", [True, False])
def test_fetch_that_waits_returns_no_record_written_after_the_session(is_usual: bool) -> None:
    """A fetch with a rack is not usual, so it waits in a task."""

    async def main(kafka: KafkaNode) -> None:
        await create_topic(kafka.channel, "quiet")
        await set_password(kafka.node, "admin", PASSWORD)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            await log_in(client, "admin", PASSWORD)
            client.send_body(FETCH, 12, long_fetch("quiet", is_usual=is_usual))
            await asyncio.sleep(6)
            secret = encode_batch([Record(0, 0, None, b"secret")])
            await produce(kafka.client, secret, topic="quiet")
            with pytest.raises(ConnectionEnded):
                await client.frame()

    run_on_kafka_node(main, "/node", **SASL, connections_max_reauth_ms=5_000)


def test_unknown_user_has_iterations_and_a_salt_length_of_known_ones() -> None:
    """Also after the only user with them is gone."""

    async def main(kafka: KafkaNode) -> None:
        async def shapes() -> set[tuple[int, int]]:
            found = set()
            for number in range(20):
                async with connected(kafka.runtime, sasl_address(kafka)) as client:
                    await begin(client)
                    answer = await step(client, f"n,,n=nobody{number},r=abcdefghijklmnopqrst")
                _, salt, count = answer.auth_bytes.decode().split(",")
                found.add((int(count[2:]), len(b64decode(salt[2:]))))
            return found

        assert await shapes() == {(4_096, 20)}
        await set_password(kafka.node, "alice", PASSWORD, iterations=8_192)
        assert await shapes() == {(8_192, 16)}
        await set_password(kafka.node, "bob", PASSWORD, salt=b"s" * 200)
        assert await shapes() == {(8_192, 16), (4_096, 200)}
        await remove_user(kafka.node, "alice")
        assert await shapes() == {(4_096, 200)}

    run_on_kafka_node(main, "/node", **SASL, connection_failed_authentication_delay_ms=0)


def test_failed_logins_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main(kafka: KafkaNode) -> None:
        clients = [await connect(kafka.runtime, sasl_address(kafka)) for _ in range(40)]
        for client in clients:
            await begin(client)
        for client in clients:
            client.send(AUTHENTICATE, 2, auth_bytes=b"n,,n=x")
        for client in clients:
            await client.answer(AUTHENTICATE, 2)
            client.connection.abort()

    run_on_kafka_node(main, "/node", **SASL)
    failed = [each for each in caplog.records if "not_authenticated" in each.msg]
    assert 0 < len(failed) <= LINES_A_SECOND_MAX


def test_connection_ends_when_its_password_changes_or_is_removed() -> None:
    async def main(kafka: KafkaNode) -> None:
        for is_removed in (False, True):
            await set_password(kafka.node, "admin", PASSWORD)
            async with connected(kafka.runtime, sasl_address(kafka)) as client:
                await log_in(client, "admin", PASSWORD)
                assert await may_describe(client)
                if is_removed:
                    await remove_user(kafka.node, "admin")
                else:
                    await set_password(kafka.node, "admin", "another")
                await client.ended()
                assert client.has_ended

    run_on_kafka_node(main, "/node", **SASL)


def test_client_that_never_logs_in_is_disconnected() -> None:
    async def main(kafka: KafkaNode) -> None:
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            for _ in range(3):
                await client.ask(18, 3, client_software_name="t", client_software_version="1")
                await asyncio.sleep(0.3)
            await client.ended()
            assert client.has_ended

    run_on_kafka_node(main, "/node", **SASL, kafka_request_receive_ms_max=1_000)


def test_large_request_before_the_login_ends_the_connection_without_memory_for_it() -> None:
    async def main(kafka: KafkaNode) -> None:
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            client.send_raw((1 << 20).to_bytes(4, "big") + AUTHENTICATE.to_bytes(2, "big"))
            await client.ended()
            assert client.has_ended
            assert kafka.node.parts.kafka is not None
            assert kafka.node.parts.kafka.memory.taken == 0

    run_on_kafka_node(main, "/node", **SASL)


def test_login_with_the_old_password_fails_after_it_has_changed() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "admin", PASSWORD)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            await begin(client)
            exchange = scramp.ScramClient(["SCRAM-SHA-256"], "admin", PASSWORD, c_nonce="n" * 24)
            first = await step(client, exchange.get_client_first())
            exchange.set_server_first(first.auth_bytes.decode())
            await set_password(kafka.node, "admin", "another")
            answer = await step(client, exchange.get_client_final())
            assert answer.error_code.value == SaslAuthenticationFailed.code
            await client.ended()

    run_on_kafka_node(main, "/node", **SASL)


def test_long_names_are_refused_before_they_are_prepared() -> None:
    """The preparation of a name takes quadratic time (RFC 3454), which would block the event
    loop."""

    async def main(kafka: KafkaNode) -> None:
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            await begin(client)
            answer = await step(client, f"n,,n={chr(0xFDFA) * 700},r=abcdefghijklmnopqrst")
            assert answer.error_code.value == SaslAuthenticationFailed.code
            assert "the limit is 2000" in answer.error_message

    run_on_kafka_node(main, "/node", **SASL)


def test_guesses_behind_a_failed_one_are_not_answered() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "alice", PASSWORD)
        async with connected(kafka.runtime, sasl_address(kafka)) as client:
            await begin(client)
            for _ in range(3):
                client.send(AUTHENTICATE, 2, auth_bytes=b"n,,n=alice")
            _, answer = await client.answer(AUTHENTICATE, 2)
            assert answer.error_code.value == SaslAuthenticationFailed.code
            with pytest.raises(ConnectionEnded):
                await client.answer(AUTHENTICATE, 2)

    run_on_kafka_node(main, "/node", **SASL)


def test_client_that_leaves_before_the_answer_waits_at_its_next_attempt() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "alice", PASSWORD)
        address = sasl_address(kafka)
        for _ in range(8):
            async with connected(kafka.runtime, address) as client:
                await begin(client)
                client.send(AUTHENTICATE, 2, auth_bytes=b"n,,n=alice")
                await asyncio.sleep(0.02)
        async with connected(kafka.runtime, address) as client:
            began_ms = kafka.runtime.clock.now_ms()
            await begin(client)
            assert kafka.runtime.clock.now_ms() - began_ms >= 100

    run_on_kafka_node(main, "/node", **SASL)


def test_claimed_sizes_before_the_login_use_no_memory_of_all_clients() -> None:
    async def main(kafka: KafkaNode) -> None:
        assert kafka.node.parts.kafka is not None
        clients = [await connect(kafka.runtime, sasl_address(kafka)) for _ in range(50)]
        for client in clients:
            client.send_raw((36_000).to_bytes(4, "big") + AUTHENTICATE.to_bytes(2, "big"))
        await asyncio.sleep(1)
        assert not any(client.has_ended for client in clients)
        assert kafka.node.parts.kafka.memory.taken == 0
        for client in clients:
            client.connection.abort()

    run_on_kafka_node(main, "/node", **SASL)
