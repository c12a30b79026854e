"""grpc, imported so that its C core writes nothing to a user's terminal.

The core logs connections that come and go on stderr, where no handler of ours can stop it. How much
it reads from GRPC_VERBOSITY, once, when it is loaded: the variable is set for that moment, unless
the user has set it, and taken back, since a child process and its libraries are not ours. What goes
wrong reaches the caller as a typed error all the same.
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
