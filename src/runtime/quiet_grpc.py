"""grpc, imported so that its C core writes nothing to the terminal.

The core logs connections to stderr, which no logging handler can suppress. It reads the level from
GRPC_VERBOSITY once, when it is loaded. The variable is set for the import, unless the user has set
it, and then removed, so that child processes do not inherit it. Failures reach the caller as typed
errors.
"""

import os

_VARIABLE = "GRPC_VERBOSITY"
_IS_OURS = _VARIABLE not in os.environ
if _IS_OURS:
    os.environ[_VARIABLE] = "NONE"

import grpc as grpc  # noqa: E402  after the variable
from grpc import aio as aio  # noqa: E402

if _IS_OURS:
    del os.environ[_VARIABLE]
