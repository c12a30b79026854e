"""Six tasks of a reader who follows visible links and buttons only, beginning at the overview."""

from collections.abc import Iterator

import pytest
from tests.console.browser import Browser
from tests.console.process import console_process

from quorumlog.errors import QuorumlogError
from quorumlog.testing import Broker, Cluster


class Reader:
    """Follows the visible texts of pages; it enters no address."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        browser.look(1280, "light")
        browser.wait_for("#live .health")

    def follow(self, text: str) -> None:
        """Click the visible link or button with a text."""
        self.browser.click("header nav a, main a, main button", text)

    def enter(self, label: str, text: str) -> None:
        """Enter a text in the field with a label, or choose it."""
        script = """return [...document.querySelectorAll("main label")].find((each) =>
            each.checkVisibility() && each.innerText.startsWith(arguments[0])).control.name"""
        self.browser.fill(self.browser.driver.execute_script(script, label), text)

    def read(self, text: str) -> str:
        """Return the text of the page once it has a text."""
        self.browser.wait_for("main", text)
        return self.browser.text("main")


@pytest.fixture
def reader(browser: Browser) -> Reader:
    """A reader at the overview of the broker of all tests."""
    return Reader(browser)


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """A topic with records, half of which the group task-billing has read."""
    name = broker.create_topic("task-orders", partitions=2)
    with broker.connect() as log:
        with log.producer() as producer:
            for number in range(40):
                value = f"order {number}"
                producer.send(name, value, key=f"customer-{number}", partition=number % 2)
        log.admin.reset_offsets("task-billing", {(name, 0): 10, (name, 1): 15})
    return name


@pytest.mark.usefixtures("topic")
def test_lag_of_a_group_is_found(reader: Reader) -> None:
    reader.follow("Groups")
    reader.enter("Filter by name", "task-bill")
    reader.follow("task-billing")
    assert "Lag 15 in 2 of 2 partitions." in reader.read("Largest lag")
    rows = [text.split()[:2] for text in reader.browser.texts("#offsets tbody tr")]
    assert rows == [["task-orders-0", "10"], ["task-orders-1", "5"]]


def test_record_is_read_by_its_key(reader: Reader, topic: str) -> None:
    reader.follow("Records")
    reader.follow(topic)
    reader.enter("Search in", "Key")
    reader.enter("Condition", "equals")
    reader.enter("Search for", "customer-17")
    reader.enter("Start at", "the oldest records")
    reader.follow("Search")
    reader.read("Search ended: 1 found in 40 records")
    reader.follow("8")
    assert "order 17" in reader.read("Partition 1, offset 8")


@pytest.mark.long
def test_topic_is_created(reader: Reader, broker: Broker) -> None:
    reader.follow("Topics")
    reader.follow("Create a topic")
    reader.enter("Name", "task-new")
    reader.enter("Partitions", "3")
    reader.follow("Create topic")
    reader.read("Created topic task-new.")
    with broker.connect() as log:
        assert len(log.admin.describe_topic("task-new").partitions) == 3


@pytest.mark.long
def test_offsets_of_a_group_are_reset(reader: Reader, broker: Broker, topic: str) -> None:
    with broker.connect() as log:
        log.admin.reset_offsets("task-reset", "latest", topics=[topic])
    reader.follow("Groups")
    reader.enter("Filter by name", "task-reset")
    reader.follow("task-reset")
    reader.read("No lag")
    reader.follow("Reset offsets")
    reader.enter("New position", "the start of the logs")
    reader.follow("Preview")
    reader.read("Preview: 2 of 2 offsets would change")
    reader.enter("Enter task-reset to confirm", "task-reset")
    reader.follow("Set 2 offsets")
    reader.read("Set 2 offsets of group task-reset.")
    reader.read("Lag 40 in 2 of 2 partitions.")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes, of which a follower leaves the ISR soon and a silent broker is not fenced."""
    rows = {"replica.lag.time.max.ms": 500, "broker.session.timeout.ms": 60_000}
    with Cluster(settings=rows) as started:
        yield started


@pytest.fixture
def cluster_reader(browser: Browser, cluster: Cluster) -> Iterator[Reader]:
    """A reader at the overview of the cluster."""
    with console_process("--bootstrap", cluster.grpc) as console:
        browser.open_console(console)
        yield Reader(browser)
        browser.errors()


def place_replicas(cluster: Cluster, topic: str) -> tuple[int, int]:
    """Create a topic with two replicas on nodes other than the controller; return its leader and
    the follower."""
    first, second = (node for node in cluster.nodes if node != cluster.controller())
    with cluster.connect() as log:
        log.admin.create_topic(topic, assignments=[[first, second]])
        with log.producer() as producer:
            producer.send(topic, "before", partition=0).result()
    assert cluster.leader(topic) == first
    return first, second


@pytest.mark.long
def test_reason_why_a_replica_is_not_in_sync_is_found(
    cluster_reader: Reader, cluster: Cluster
) -> None:
    reader, topic = cluster_reader, "task-behind"
    leader, follower = place_replicas(cluster, topic)

    def find_reason(text: str) -> str:
        reader.follow("Overview")
        reader.read("Topics that need attention")
        reader.follow(topic)
        return reader.read(text)

    try:
        cluster.cut(leader, follower)  # the follower keeps its session with the controller
        with cluster.connect() as log, log.producer(acks=1) as producer:
            for number in range(7):
                producer.send(topic, str(number), partition=0).result()
        found = find_reason(f"replica {follower}: broker {follower} is 7 records behind")
        assert "It lacks 7 records since " in found
        assert "It joins the ISR once it has caught up" in found
    finally:
        cluster.heal()
    reader.browser.wait_for("#partitions .state.good")
    cluster.kill(follower)
    found = find_reason(f"Broker {follower} is down: nothing listens at")
    assert f"replica {follower} " in found  # and its distance, once its cause is above
    assert f"quorumlog cluster start {follower}" in found
    assert "such as a failed disk" in found
    cluster.start(follower)


@pytest.mark.long
def test_slow_broker_is_found(cluster_reader: Reader, cluster: Cluster) -> None:
    reader = cluster_reader
    node = next(each for each in cluster.nodes if each != cluster.controller())
    cluster.pause(node)
    try:
        with (
            cluster.connect(request_timeout_ms=1_000, call_timeout_ms=1_000) as log,
            pytest.raises(QuorumlogError),
        ):
            log.admin.describe_configs(broker=node)  # one second passes
    finally:
        cluster.resume(node)
    reader.read(f"Broker {node} is slow: ")  # in the health, too
    reader.follow("Brokers")
    reader.read(f"Broker {node} is slow:")
    assert "slow" in reader.browser.texts("#brokers .state.warning")
    reader.follow("Request times and disks")
    reader.read("This broker is slow")
