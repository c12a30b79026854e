"""Compiles the hot modules, if asked to: `QUORUMLOG_COMPILE=1` with mypy beside setuptools.

All else is in pyproject.toml. mypyc makes one C library of the modules below, by their types; each
stays as it is beside it, and is what runs where nothing was compiled. In an editable install an
edit must count at once, so nothing is compiled there; `make compiled` builds beside the checkout.
"""

import os

from setuptools import setup
from setuptools.command.build_ext import build_ext

PACKAGE = ".pkg/quorumlog/"

MODULES = [
    "metrics/instruments",
    "runtime/byte_network",
    "runtime/files",
    "runtime/range_sender",
    "records/batch",
    "storage/append",
    "storage/conversion",
    "storage/log",
    "storage/producer_state",
    "storage/read",
    "storage/leader_epochs",
    "storage/flush",
    "storage/index",
    "storage/segment",
    "storage/segments",
    "storage/shell/append_queue",
    "storage/shell/free_space",
    "storage/shell/writer",
    "broker/coordinator/deadlines",
    "broker/coordinator/decision",
    "broker/coordinator/fields",
    "broker/coordinator/key_hash",
    "broker/coordinator/shell/coordinator",
    "broker/coordinator/shell/coordinator_shard",
    "broker/groups/classic_rebalance",
    "broker/groups/classic_group",
    "broker/groups/classic_members",
    "broker/groups/consumer/core",
    "broker/groups/consumer/group",
    "broker/groups/consumer/heartbeat",
    "broker/groups/consumer/reconciliation",
    "broker/groups/consumer/state",
    "broker/groups/formats",
    "broker/groups/records",
    "broker/groups/offsets",
    "broker/groups/pending_offsets",
    "broker/groups/shard",
    "broker/groups/shell/coordinator",
    "broker/groups/shell/group_ids",
    "broker/groups/shell/group_coordinator_shard",
    "broker/transactions/shell/coordinator",
    "broker/transactions/shell/metrics",
    "broker/transactions/shell/transaction_coordinator_shard",
    "broker/requests",
    "broker/partition_follower",
    "broker/isr",
    "broker/partition",
    "broker/partition_leader",
    "broker/verification",
    "broker/purgatory",
    "broker/shell/hosted_replicas",
    "broker/shell/produce",
    "broker/shell/metrics",
    "broker/shell/reads",
    "broker/shell/replica",
    "broker/shell/replica_manager",
    "frontends/kafka/api",
    "frontends/kafka/apis/fetch",
    "frontends/kafka/pending_group_call",
    "frontends/kafka/apis/consumer_group_heartbeat",
    "frontends/kafka/apis/heartbeat",
    "frontends/kafka/apis/offset_commit",
    "frontends/kafka/apis/group_table",
    "frontends/kafka/apis/produce",
    "frontends/kafka/quota_charge",
    "frontends/kafka/connection",
    "frontends/kafka/deadlines",
    "frontends/kafka/metrics",
    "frontends/kafka/frames",
    "frontends/kafka/request",
    "frontends/kafka/error_codes",
    "frontends/kafka/codecs/fetch",
    "frontends/kafka/codecs/groups",
    "frontends/kafka/codecs/leaders",
    "frontends/kafka/codecs/primitives",
    "frontends/kafka/codecs/produce",
    "frontends/kafka/encoding_offload",
    "frontends/kafka/memory",
]


def is_asked() -> bool:
    """Say whether the hot modules are to be compiled."""
    return os.environ.get("QUORUMLOG_COMPILE") == "1"


class BuildExtensions(build_ext):
    """The record codec, and the hot modules where they are wanted."""

    def finalize_options(self) -> None:
        """Find what is to be built."""
        if is_asked() and not (self.inplace or self.editable_mode):
            from mypyc.build import mypycify

            paths = [f"{PACKAGE}{name}.py" for name in MODULES]
            options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
            self.distribution.ext_modules += mypycify(
                [*options, *paths], opt_level="2", debug_level="0", group_name="quorumlog"
            )
        super().finalize_options()


setup(
    cmdclass={"build_ext": BuildExtensions},
    # What an isolated build is given beside pyproject.toml's list.
    setup_requires=["mypy>=1.18"] if is_asked() else [],
)
