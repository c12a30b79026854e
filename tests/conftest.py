"""What every test run starts from, on whatever machine and however it was started."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quorumlog",
    deadline=None,  # a busy machine is no finding; what must be quick has a test that says so
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quorumlog")

# A shell without job control starts what it puts in the background deaf to Ctrl-C, and so are all
# its children. The tests of Ctrl-C send it themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
