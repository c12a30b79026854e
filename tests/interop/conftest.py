"""The compiled and the plain codec as a parameter: both must pass the interoperability tests."""

from types import ModuleType

import pytest

from quorumlog.records import _plain, codec

KERNELS: list[ModuleType] = [_plain]
if codec.COMPILED:
    from quorumlog.records import _codec

    KERNELS.append(_codec)


@pytest.fixture(params=KERNELS, ids=lambda kernel: kernel.__name__.rpartition("._")[2])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `quorumlog.records` use this codec during the test."""
    monkeypatch.setattr(codec, "_kernel", request.param)
