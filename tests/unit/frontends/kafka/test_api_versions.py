"""ApiVersions: the offered ranges in every version, and the response to a newer version."""

import pytest
from tests.kit.kafka_client import read_answer
from tests.kit.kafka_node import serving_kafka
from tests.kit.node import Run

from quorumlog.frontends.kafka.apis import APIS
from quorumlog.runtime import Runtime

API_VERSIONS = 18
SAID = {"client_software_name": "a-client.of-mine", "client_software_version": "1.0-rc.1"}


def test_every_version_lists_every_key_with_its_range(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        expected = {
            api.key: (api.low if api.advertised_low is None else api.advertised_low, api.high)
            for api in APIS
        }
        async with serving_kafka(runtime, folder) as kafka:
            for version in range(5):
                answer = await kafka.client.ask(API_VERSIONS, version, **SAID)
                rows = [
                    (row.api_key, (row.min_version, row.max_version)) for row in answer.api_keys
                ]
                assert (answer.error_code, dict(rows)) == (0, expected)
                assert [key for key, _ in rows] == sorted(expected)

    run(main)


def test_a_version_that_is_too_new_is_answered_in_version_0_with_this_keys_range_alone(
    run: Run, folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            kafka.client.send_raw(bytes.fromhex("0000000b 0012 0063 00000007 ffff 00"))
            correlation_id, answer = read_answer(API_VERSIONS, 0, await kafka.client.frame())
            assert (correlation_id, answer.error_code) == (7, 35)
            (row,) = answer.api_keys
            assert (row.api_key, row.min_version, row.max_version) == (API_VERSIONS, 0, 4)
            again = await kafka.client.ask(API_VERSIONS, row.max_version, **SAID)
            assert again.error_code == 0

    run(main)


def test_finalized_features_are_returned_from_version_3_on(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            assert not hasattr(await kafka.client.ask(API_VERSIONS, 2), "supported_features")
            for version in (3, 4):
                answer = await kafka.client.ask(API_VERSIONS, version, **SAID)
                supported = [
                    (each.name, each.min_version, each.max_version)
                    for each in answer.supported_features
                ]
                # Java clients before 3.8 do not connect to a broker with a lowest level of 0.
                from_zero = [("transaction.version", 0, 2)] if version >= 4 else []
                assert supported == [("metadata.version", 1, 1), *from_zero]
                finalized = [
                    (each.name, each.min_version_level, each.max_version_level)
                    for each in answer.finalized_features
                ]
                assert finalized == [("metadata.version", 1, 1), ("transaction.version", 2, 2)]
                assert answer.finalized_features_epoch >= 0

    run(main)


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ünder", "a\n", "."])
def test_invalid_client_software_name_is_refused_and_the_client_may_retry(
    name: str, folder: str
) -> None:
    from quorumlog.simulation import run

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            for said in (
                {"client_software_name": name, "client_software_version": "1"},
                {"client_software_name": "x", "client_software_version": name},
            ):
                answer = await kafka.client.ask(API_VERSIONS, 3, **said)
                assert (answer.error_code, answer.api_keys) == (42, ())
            assert (await kafka.client.ask(API_VERSIONS, 3, **SAID)).error_code == 0

    run(main)
