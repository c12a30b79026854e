"""The verifier of a broker: every verification has one result, whatever fails."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from quorumlog.broker.transactions.shell import TransactionCoordinator
from quorumlog.broker.transactions.shell import verifier as module
from quorumlog.broker.transactions.shell.verifier import TransactionVerifier
from quorumlog.broker.verification import Verification
from quorumlog.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    Overloaded,
    QuorumlogError,
    Stopping,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.proto import transaction_coordination_pb2 as pb
from quorumlog.runtime import Channel, Network, Runtime
from quorumlog.runtime.error_detail import encode_error

from .coordinated import NAME, cluster, coordinating, coordinator, on
from .shard_play import TOPIC_A

Answer = Callable[[], QuorumlogError | None]


class Coordinating:
    """A `Network` whose brokers answer every verification alike; also its only channel."""

    def __init__(self, answer: Answer) -> None:
        self.asked_ms: list[int] = []  # one time for each request
        self._answer = answer
        self._clock_ms: Callable[[], int] = lambda: 0

    def attach(self, runtime: Runtime) -> None:
        self._clock_ms = runtime.clock.now_ms

    def channel(self, address: str) -> Channel:
        return cast(Channel, self)

    async def call(
        self, method: object, request: pb.VerifyTransactionsRequest, **options: object
    ) -> pb.VerifyTransactionsResponse:
        self.asked_ms.append(self._clock_ms())
        error = self._answer()
        response = pb.VerifyTransactionsResponse()
        for _ in request.verifications:
            result = response.results.add()
            if error is not None:
                result.error.CopyFrom(encode_error(error))
        return response


def verification(partition: int = 0, *, adds: bool = True) -> Verification:
    return Verification(NAME, ProducerIdentity(1, 0), "a", partition, TOPIC_A, adds=adds)


def verifying(
    network: Coordinating, ask: Callable[[TransactionVerifier], Coroutine[Any, Any, None]]
) -> None:
    """Run `ask` with a verifier on a broker that is not the coordinator."""
    with cluster() as nodes:
        number = next(n for n in nodes.numbers if n != coordinating(nodes))
        transactions: TransactionCoordinator = coordinator(nodes, number)

        async def main(runtime: Runtime) -> None:
            network.attach(runtime)
            async with runtime.tasks.scope("test") as scope:
                verifier = TransactionVerifier(
                    runtime.clock,
                    scope.spawn,
                    transactions,
                    network=cast(Network, network),
                    cluster_id="c",
                )
                await ask(verifier)
                await verifier.close()

        on(nodes, number, main)


def broken() -> QuorumlogError | None:
    raise RuntimeError("no channel")


def too_early() -> QuorumlogError | None:
    return ConcurrentTransactions("markers are being written")


def test_verifications_fail_retriably_after_an_unexpected_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[QuorumlogError | None] = []

    async def ask(verifier: TransactionVerifier) -> None:
        for _ in range(2):
            verifier.verify(verification(), answers.append)
            await asyncio.sleep(1)

    verifying(Coordinating(broken), ask)
    assert [type(each) for each in answers] == [CoordinatorNotAvailable] * 2
    assert "stopping" not in str(answers[0])
    assert "RuntimeError: no channel" in caplog.text


def test_a_bug_in_handling_an_answer_concerns_no_other_verification(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[QuorumlogError | None] = []

    def fail(error: QuorumlogError | None) -> None:
        raise RuntimeError("broken callback")

    async def ask(verifier: TransactionVerifier) -> None:
        verifier.verify(verification(), fail)
        verifier.verify(verification(1), answers.append)
        await asyncio.sleep(1)
        verifier.verify(verification(), answers.append)
        await asyncio.sleep(1)

    verifying(Coordinating(lambda: None), ask)
    assert answers == [None, None]
    assert "RuntimeError: broken callback" in caplog.text


def test_an_early_verification_is_retried_after_doubled_backoffs() -> None:
    """For 100 ms in all: 5, 10, 20, 40, and the 25 ms that are left."""
    answers: list[QuorumlogError | None] = []

    async def ask(verifier: TransactionVerifier) -> None:
        verifier.verify(verification(), answers.append)
        await asyncio.sleep(1)
        verifier.verify(verification(adds=False), answers.append)
        await asyncio.sleep(1)

    network = Coordinating(too_early)
    verifying(network, ask)
    first = network.asked_ms[0]
    asked = [at - first for at in network.asked_ms]
    assert asked[:6] == [0, 5, 15, 35, 75, 100]
    assert len(asked) == 7  # a verification that adds nothing is not retried
    assert [type(each) for each in answers] == [ConcurrentTransactions] * 2


def test_verifications_before_a_retry_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    answers: list[QuorumlogError | None] = []

    async def ask(verifier: TransactionVerifier) -> None:
        for partition in range(2):
            verifier.verify(verification(partition), answers.append)
        await asyncio.sleep(0.003)  # both pause
        verifier.verify(verification(2), answers.append)
        assert [type(each) for each in answers] == [Overloaded]
        await asyncio.sleep(1)

    verifying(Coordinating(too_early), ask)
    assert [type(each) for each in answers[1:]] == [ConcurrentTransactions] * 2


def test_a_verification_without_a_sent_request_fails_at_close() -> None:
    answers: list[QuorumlogError | None] = []

    async def ask(verifier: TransactionVerifier) -> None:
        verifier.verify(verification(), answers.append)
        # In the turn in which the request's task is created, before its first step.
        asyncio.get_running_loop().call_soon(close, verifier)
        await asyncio.sleep(1)

    def close(verifier: TransactionVerifier) -> None:
        with pytest.raises(StopIteration):  # it waits for nothing
            verifier.close().send(None)

    network = Coordinating(lambda: None)
    verifying(network, ask)
    assert [type(each) for each in answers] == [Stopping]
    assert network.asked_ms == []
