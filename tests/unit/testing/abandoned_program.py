"""Start two nodes, pause one of them, print their processes, and wait to be killed."""

import json
import signal

from quorumlog.testing import Cluster

if __name__ == "__main__":
    cluster = Cluster(brokers=1, controllers=1)
    cluster.start()
    cluster.pause(1)
    row = {
        "pids": [cluster.pid(number) for number in cluster.nodes],
        "folder": str(cluster.nodes[1].data_dir.parent),
    }
    print(json.dumps(row), flush=True)
    signal.pause()
