"""ApiVersions: what is offered, in every version, and what who asks for a newer one is told."""

from quorumlog.runtime import Runtime

from ..served_node import Run
from .kafka_node import serving_kafka
from .raw_client import read_answer

API_VERSIONS = 18


def test_every_version_lists_itself(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            for version in range(5):
                said = {"client_software_name": "raw", "client_software_version": "1"}
                answer = await kafka.client.ask(API_VERSIONS, version, **said)
                assert answer.error_code == 0
                offered = {
                    row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
                }
                assert offered[API_VERSIONS] == (0, 4)

    run(main)


def test_a_version_that_is_too_new_is_answered_in_version_0_with_an_error(
    run: Run, folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            kafka.client.send_raw(bytes.fromhex("0000000b 0012 0063 00000007 ffff 00"))
            correlation_id, answer = read_answer(API_VERSIONS, 0, await kafka.client.frame())
            assert (correlation_id, answer.error_code) == (7, 35)
            assert API_VERSIONS in {row.api_key for row in answer.api_keys}

    run(main)
