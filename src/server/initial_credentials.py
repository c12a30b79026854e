"""Users that exist when a cluster starts for the first time (KIP-900).

`quorumlog storage format --add-scram` leaves their salted keys in a file of the data directory. The
first active controller with such a file puts them into the metadata log, without replacing a
credential that is there already. A controller removes its file once the users exist.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from ..errors import CorruptionError, QuorumlogError
from ..metadata import AlterScramCredentials, ImageDelta
from ..metadata.codec import decode_request
from ..metadata.scram_credentials import (
    ScramCredential,
    ScramKey,
    ScramMechanism,
    credential_of_password,
    fill_credential,
)
from ..metadata.shell import ControllerShell, MetadataPublisher, MetadataStateMachine
from ..proto import admin_pb2
from ..runtime import Entropy, Runtime
from ..scram_keys import ITERATIONS_DEFAULT, SALT_BYTES
from ..storage.layout import INITIAL_CREDENTIALS
from ..storage.small_files import read_file, replace_file

_LOG: Final = logging.getLogger("quorumlog.security")


def initial_credentials(
    entropy: Entropy, user: str, password: str
) -> dict[ScramKey, ScramCredential]:
    """Return credentials of a user for every mechanism. Raises UnacceptableCredential."""
    return {
        (user, mechanism): credential_of_password(
            mechanism, password, salt=entropy.token(SALT_BYTES), iterations=ITERATIONS_DEFAULT
        )
        for mechanism in ScramMechanism
    }


async def store_credentials(
    runtime: Runtime, data_dir: str, credentials: Mapping[ScramKey, ScramCredential]
) -> None:
    """Write the file of a formatted data directory."""
    message = admin_pb2.AlterScramCredentialsRequest()
    for key, credential in credentials.items():
        fill_credential(message.upsertions.add(), key, credential)
    content = message.SerializeToString(deterministic=True)
    await runtime.tasks.offload(
        "read", partial(replace_file, runtime.files, data_dir, INITIAL_CREDENTIALS, content)
    )


class InitialCredentials:
    """The task that moves the file's credentials into the metadata log."""

    def __init__(
        self,
        runtime: Runtime,
        data_dir: str,
        controller: ControllerShell,
        metadata: MetadataStateMachine,
        publisher: MetadataPublisher,
    ) -> None:
        """Create it after the controller, which learns of its leadership first."""
        self._runtime = runtime
        self._path = f"{data_dir}/{INITIAL_CREDENTIALS}"
        self._controller = controller
        self._metadata = metadata
        self._is_closed = False
        self._changed = asyncio.Event()
        metadata.on_leadership(lambda _: self._changed.set())
        publisher.subscribe(self._applied)

    async def run(self) -> None:
        """Wait for the leadership and add the credentials, or until another controller has."""
        wanted = await self._read()
        while not self._is_closed:
            self._changed.clear()
            if await self._add(wanted):
                await self._runtime.tasks.offload(
                    "read", partial(self._runtime.files.remove, self._path)
                )
                return
            await self._changed.wait()

    def close(self) -> None:
        """End `run`."""
        self._is_closed = True
        self._changed.set()

    def _applied(self, delta: ImageDelta) -> None:
        if delta.after.scram_credentials is not delta.before.scram_credentials:
            self._changed.set()

    async def _read(self) -> AlterScramCredentials:
        content = await self._runtime.tasks.offload(
            "read", partial(read_file, self._runtime.files, self._path)
        )
        message = admin_pb2.AlterScramCredentialsRequest()
        try:
            message.ParseFromString(content)
        except ValueError as error:
            raise CorruptionError(
                f"{self._path}: cannot be parsed; remove it, and create the user by another"
                f" administrator: {error}",
                path=self._path,
            ) from None
        return decode_request(AlterScramCredentials, message)

    async def _add(self, wanted: AlterScramCredentials) -> bool:
        """Return True if the users exist. Add the credentials of unknown ones, if this node is the
        active controller."""
        known = self._metadata.committed_image.scram_credentials
        missing = tuple(each for each in wanted.upsertions if each[0] not in known)
        if not missing:
            return True
        if not self._controller.is_active:
            return False
        try:
            await self._controller.submit(AlterScramCredentials(upsertions=missing))
        except QuorumlogError as error:
            _LOG.info("security.initial_credentials_postponed error=%s", error)
            return False
        users = sorted({user for (user, _), _ in missing})
        _LOG.info("security.initial_users users=%s", ",".join(users))
        return True
