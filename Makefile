# quorumlog: `make help` lists what there is. Two commands do everything on a fresh machine: `make demo`, `make test`.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
BIN := $(CURDIR)/$(VENV)/bin
LEVEL ?= broker
SEEDS ?= 50
MINUTES ?= 10
TRANSACTION_MINUTES ?= 30
SPARK_KILLS ?= 20
FUZZ_SECONDS ?= 30
SHRINK_SECONDS ?= 60
CORE_COVERAGE ?= 97

# Hundreds of processes are started here. Where no byte code is kept, each compiles every module anew: a second for a node.
unexport PYTHONDONTWRITEBYTECODE

# Run once more on the codec in plain Python: all tests of the codec, and quick tests of the modules that call it. Both codecs
# are equal byte for byte (tests/property/records), so that a caller needs only the tests that encode or decode batches.
CODEC_TESTS := tests/unit/records tests/property/records
PLAIN_WIRE := log_service plain_records publish idempotent_produce topic_ids
PLAIN_KAFKA := produce produce_runs fetch produce_fetch_versions not_leader_responses throttling delete_records
PLAIN_BROKER := apply_steps compacted_reads mirror replicas
PLAIN_CLIENTS := accumulator_model arrow_polls batch_encoder compacted_topics consumer_prefetch control_batches \
  idempotence json_rows log_arrow producer sequences topic_times
PLAIN_TESTS := tests/unit/storage $(PLAIN_BROKER:%=tests/unit/broker/test_%.py) \
  $(PLAIN_CLIENTS:%=tests/unit/clients/test_%.py) tests/unit/spark/test_reading.py \
  $(PLAIN_WIRE:%=tests/unit/frontends/test_%.py) $(PLAIN_KAFKA:%=tests/unit/frontends/kafka/test_%.py)

# A file's tests stay together; tests/conftest.py puts the files that take long first, so that the workers end together.
# Four for two cores: at any time some tests wait for a process or a timeout.
WORKERS := --numprocesses 4 --dist loadfile --no-loadscope-reorder

# The modules of the consensus core, and the tests of the core alone.
CORE_MODULES := */raftlog/candidate.py,*/raftlog/config.py,*/raftlog/follower.py,*/raftlog/leader.py,*/raftlog/log_view.py,*/raftlog/messages.py,*/raftlog/progress.py,*/raftlog/raft.py,*/raftlog/ready.py,*/raftlog/roles.py,*/raftlog/state.py,*/raftlog/status.py,*/raftlog/voters.py,*/raftlog/writes.py
CORE_TESTS := tests/unit/raftlog/core tests/scenarios tests/property/raftlog

.PHONY: help setup browser prometheus site console-pictures spark-oldest demo test test-spark-oldest test-plain test-all sanitize lint smells format types proto proto-check docs pictures simulate simulate-briefly shrink coverage-core track-record mutate mutate-simulated mutate-native fuzz soak transaction-chaos spark-chaos conformance bench dist lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

setup: $(VENV)/.installed ## make the virtual environment, install everything from the lock file, build the codec

$(VENV)/.installed: pyproject.toml requirements.lock $(wildcard src/*/_*.pyx src/*/_*.pxd src/*/_*.pxi)
	$(PYTHON) -m venv $(VENV)
	@# First what compiles; then one core compiles while the other one unpacks.
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement <(grep -E '^(cython|setuptools)==' requirements.lock)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock & unpacking=$$!; \
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; compiled=$$?; \
	wait $$unpacking && exit $$compiled
	@$(BIN)/python -c "import quorumlog.records as records; print(records.describe())"
	@touch $@

spark-oldest: $(VENV)/spark-oldest/.installed ## unpack the oldest supported version of Spark, for the tests

# Only what differs from the environment, in a folder that PYTHONPATH puts ahead of it.
$(VENV)/spark-oldest/.installed: requirements.spark-oldest.lock | setup
	rm -rf $(@D)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $(@D) --requirement $<
	@touch $@

browser: ## Chromium for tests/console, from the packages of Debian (as root)
	@command -v chromium chromedriver > /dev/null || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver; }

prometheus: ## promtool and Prometheus for the tests of alerts and dashboards, unpacked from Debian's package into build/
	@# Not installed: an installation would start a service.
	@command -v promtool > /dev/null || test -x build/prometheus/usr/bin/promtool || { mkdir -p build && cd build && apt-get update -qq \
	  && apt-get download -qq prometheus && dpkg-deb --extract prometheus_*.deb prometheus && rm prometheus_*.deb; }

demo: setup ## 336,776 flights into a broker, three nodes and a Spark stream that writes exactly once; kill -9 of each
	$(BIN)/python examples/flights.py

test: setup spark-oldest ## every test but the long ones: what decides a landing
	$(BIN)/pytest -m "not long and not spark" $(WORKERS)
	@# On one core Spark, in a process of its own since PySpark forks; on the other one simulations of every level, and the
	@# oldest Spark.
	@mkdir -p build; $(BIN)/pytest -m "not long and spark" tests/spark > build/spark-tests.txt 2>&1 & spark=$$!; \
	$(MAKE) --no-print-directory simulate-briefly; simulated=$$?; \
	$(MAKE) --no-print-directory test-spark-oldest; oldest=$$?; \
	wait $$spark; sparked=$$?; cat build/spark-tests.txt; exit $$(( simulated + oldest + sparked ))

test-spark-oldest: spark-oldest ## the scenario tests of Spark on its oldest supported version
	@# PySpark 4.0 leaves sockets to the garbage collector, which warns about them.
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-oldest $(BIN)/pytest -W "ignore::pytest.PytestUnraisableExceptionWarning" \
	  -m "oldest and not long" tests/spark

# Levels node, kafka and groups have transactions in seed 16, which runs twice.
simulate-briefly: setup ## some simulated runs of every level
	$(MAKE) --no-print-directory simulate LEVEL=core SEEDS=60 TWICE=10
	$(MAKE) --no-print-directory simulate LEVEL=partitions SEEDS=40 TWICE=8
	$(MAKE) --no-print-directory simulate LEVEL=quorum SEEDS=10 TWICE=2
	$(MAKE) --no-print-directory simulate LEVEL=node FIRST=16 SEEDS=6 TWICE=2
	$(MAKE) --no-print-directory simulate LEVEL=intruder SEEDS=4 TWICE=1
	$(MAKE) --no-print-directory simulate LEVEL=kafka FIRST=16 SEEDS=1 TWICE=1
	$(MAKE) --no-print-directory simulate LEVEL=coordinator SEEDS=40 TWICE=8
	$(MAKE) --no-print-directory simulate LEVEL=groups FIRST=16 SEEDS=6 TWICE=2
	$(MAKE) --no-print-directory simulate LEVEL=transactions SEEDS=2 TWICE=1
	$(MAKE) --no-print-directory simulate LEVEL=broker SEEDS=20 TWICE=4
	$(MAKE) --no-print-directory simulate LEVEL=clients SEEDS=20 TWICE=4
	$(MAKE) --no-print-directory simulate LEVEL=evil SEEDS=10 TWICE=2
	$(MAKE) --no-print-directory simulate LEVEL=storage SEEDS=2 TWICE=0

test-plain: setup ## the tests of the record codec, and the quick ones of what uses it, on the one in plain Python
	QUORUMLOG_PLAIN_CODEC=1 $(BIN)/pytest -m "not long" $(WORKERS) $(CODEC_TESTS)
	QUORUMLOG_PLAIN_CODEC=1 $(BIN)/pytest -m "not slow and not long and not spark" $(WORKERS) $(PLAIN_TESTS)

# The extension modules built with AddressSanitizer and UBSan, under the tests that send them invalid bytes. Python itself leaks
# on purpose at its end.
SANITIZED := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1 -g
SANITIZED_TESTS := tests/property/native tests/property/records tests/unit/records/test_codec.py tests/fuzz/test_targets.py

sanitize: setup ## the compiled modules under AddressSanitizer and UBSan, with invalid bytes (minutes)
	CFLAGS="$(SANITIZED)" LDFLAGS="$(SANITIZED)" $(BIN)/python -c "import setuptools; setuptools.setup()" --quiet build --build-lib build/sanitized \
	  --build-temp build/sanitized-parts
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  PYTHONMALLOC=malloc PYTHONPATH=build/sanitized $(BIN)/pytest -q -p no:cacheprovider -m "not long and not plain" $(SANITIZED_TESTS)

test-all: setup ## every test there is, and long simulation
	$(BIN)/pytest -m "not spark" $(WORKERS)
	$(BIN)/pytest -m spark tests/spark
	$(MAKE) --no-print-directory test-spark-oldest
	$(MAKE) --no-print-directory simulate LEVEL=core SEEDS=2000
	$(MAKE) --no-print-directory simulate LEVEL=partitions SEEDS=2000
	$(MAKE) --no-print-directory simulate LEVEL=coordinator SEEDS=1000
	$(MAKE) --no-print-directory simulate LEVEL=quorum SEEDS=200
	$(MAKE) --no-print-directory simulate LEVEL=node SEEDS=300
	$(MAKE) --no-print-directory simulate LEVEL=kafka SEEDS=100
	$(MAKE) --no-print-directory simulate LEVEL=groups SEEDS=300
	$(MAKE) --no-print-directory simulate LEVEL=transactions SEEDS=300
	$(MAKE) --no-print-directory simulate LEVEL=broker SEEDS=200
	$(MAKE) --no-print-directory simulate LEVEL=clients SEEDS=200
	$(MAKE) --no-print-directory simulate LEVEL=evil SEEDS=100
	$(MAKE) --no-print-directory simulate LEVEL=intruder SEEDS=40
	$(MAKE) --no-print-directory simulate LEVEL=storage SEEDS=60
	$(BIN)/python -m tests.simulation.marks
	$(MAKE) --no-print-directory transaction-chaos
	$(MAKE) --no-print-directory spark-chaos

lint: setup ## ruff (rules and format) and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=.pkg $(BIN)/lint-imports --no-cache

format: setup ## rewrite the files in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

smells: setup ## count the language and structure smells; NAME=pass_throughs lists the findings of one
	@$(BIN)/python -m tests.tidy.smells $(NAME)

types: setup ## mypy, strict
	$(BIN)/mypy

proto: setup ## generate src/proto from proto/
	proto/generate.sh $(BIN)/python

proto-check: setup ## fail when src/proto is not what proto/ generates
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && proto/generate.sh $(BIN)/python "$$fresh" \
	  && for file in "$$fresh"/*; do cmp "$$file" "src/proto/$$(basename "$$file")" || exit 1; done \
	  && echo "src/proto is fresh"

docs: setup ## write the generated pages: docs/configuration.md, docs/cli.md, the tables of docs/clients.md, docs/observability.md and docs/kafka.md
	@page=$$($(BIN)/python -c "from quorumlog.cli.pages import configuration_page as page; print(page(), end='')") \
	  && printf '%s\n' "$$page" > docs/configuration.md
	@page=$$($(BIN)/python -c "from quorumlog.cli.pages import cli_page as page; print(page(), end='')") \
	  && printf '%s\n' "$$page" > docs/cli.md
	@page=$$($(BIN)/python -c "import sys; from quorumlog.clients.settings_page import with_tables as page; \
	  print(page(sys.stdin.read()), end='')" < docs/clients.md) && printf '%s\n' "$$page" > docs/clients.md
	@page=$$($(BIN)/python -c "import sys; from quorumlog.server.observability.metrics_page import with_tables as page; \
	  print(page(sys.stdin.read()), end='')" < docs/observability.md) && printf '%s\n' "$$page" > docs/observability.md
	@page=$$($(BIN)/python -c "import sys; from quorumlog.frontends.kafka.requests_page import with_table as page; \
	  print(page(sys.stdin.read()), end='')" < docs/kafka.md) && printf '%s\n' "$$page" > docs/kafka.md

site: setup ## build the documentation site into build/site; a broken link, anchor or page without a place fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

pictures: setup ## draw the simulated runs that docs/raft.md and docs/transactions.md show
	$(BIN)/python -m tests.simulation.pictures docs/pictures

console-pictures: setup browser ## take the pictures of the console that docs/console.md and the first page show
	$(BIN)/pytest -q tests/console/test_pictures.py -k "look and (overview or topic or group or search)"
	$(BIN)/python -m tests.console.page_pictures docs/pictures

simulate: setup ## whole nodes on the simulated runtime: LEVEL=broker SEEDS=50 FIRST=0, TWICE=4 compares so many alone; SEED=n replays one
	$(BIN)/python -m tests.simulation --level $(LEVEL) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) $(if $(TWICE),--twice $(TWICE))

shrink: setup ## the events that a failed seed needs, as a story and a timeline: LEVEL=core SEED=7, within SHRINK_SECONDS=60
	$(BIN)/python -m tests.simulation.shrink --level $(LEVEL) --seed $(SEED) --seconds $(SHRINK_SECONDS)

track-record: setup ## hunt the planted bugs and write their tables into docs/track-record.md
	$(BIN)/python -m tests.planted.track_record

mutate: setup ## change the consensus core's decisions one by one, and write what no test noticed into docs/track-record.md
	nice -n 10 $(BIN)/python -m tests.mutation.run

mutate-simulated: setup ## change decisions of the cores, or of CORE=groups alone, and count what the seeds of CI notice
	nice -n 10 $(BIN)/python -m tests.mutation.simulated $(CORE)
	$(BIN)/python -m tests.mutation.simulated --page

mutate-native: setup ## change the compiled modules, and count what the comparisons with their plain twins notice (an hour)
	nice -n 10 $(BIN)/python -m tests.mutation.native
	$(BIN)/python -m tests.mutation.simulated --page

coverage-core: setup ## branch coverage of the consensus core by its own tests; fails under CORE_COVERAGE=97 percent
	@data=$$(mktemp) && trap 'rm -f "$$data"' EXIT && export COVERAGE_FILE=$$data \
	  && $(BIN)/coverage run --branch --source=src/raftlog -m pytest -q $(CORE_TESTS) \
	  && $(BIN)/coverage report --include="$(CORE_MODULES)" --show-missing --skip-covered --fail-under=$(CORE_COVERAGE)

fuzz: setup ## look by coverage for bytes that break a parser or a recovery: FUZZ_SECONDS=30 for each; needs atheris
	$(BIN)/python -m tests.fuzz.by_coverage --seconds $(FUZZ_SECONDS)

soak: setup ## restarts under real clients, then a data directory at work, for MINUTES=10 each: nothing lost, nothing grows
	$(BIN)/python -m tests.cluster.soak --minutes $(MINUTES)
	$(BIN)/python -m tests.cluster.storage_soak --minutes $(MINUTES)
	$(BIN)/python -m tests.cluster.quorum_chaos --minutes $(MINUTES)
	$(BIN)/python -m tests.cluster.cluster_chaos --minutes $(MINUTES)
	$(BIN)/python -m tests.cluster.cluster_chaos --minutes $(MINUTES) --shape apart

transaction-chaos: setup ## kill brokers, coordinators and programs with transactions for TRANSACTION_MINUTES=30: each record counts once
	$(BIN)/python -m tests.cluster.transaction_chaos --minutes $(TRANSACTION_MINUTES)

spark-chaos: setup ## kill brokers, executors and drivers under a Spark pipeline SPARK_KILLS=20 times: its table is right
	$(BIN)/python -m tests.spark.spark_chaos --kills $(SPARK_KILLS)

conformance: setup ## other people's Kafka clients against a cluster of three nodes: passed, failed, excluded per suite; SUITE=name for one, SECURITY=SASL_SSL over TLS
	$(BIN)/python -m tests.conformance $(if $(SUITE),--suite $(SUITE)) $(if $(SECURITY),--security $(SECURITY))

bench: setup ## every benchmark, one after the other, into docs/benchmarks.md: ratios beside a peer in the same run
	@for file in $(filter-out benchmarks/page.py,$(wildcard benchmarks/[a-z]*.py)); do \
	  echo "== $$file"; $(BIN)/python "$$file" || exit 1; done
	@for name in $(filter-out subject,$(basename $(notdir $(wildcard benchmarks/storage/[a-z]*.py)))); do \
	  echo "== benchmarks.storage.$$name"; $(BIN)/python -m "benchmarks.storage.$$name" || exit 1; done
	@echo "== benchmarks.raft"; $(BIN)/python -m benchmarks.raft
	@echo "== benchmarks.cluster"; $(BIN)/python -m benchmarks.cluster
	@echo "== benchmarks.kafka_wire"; $(BIN)/python -m benchmarks.kafka_wire
	@echo "== benchmarks.groups"; $(BIN)/python -m benchmarks.groups
	@echo "== benchmarks.transactions"; $(BIN)/python -m benchmarks.transactions
	@echo "== benchmarks.spark"; $(BIN)/python -m benchmarks.spark
	@echo "== benchmarks.metadata"; $(BIN)/python -m benchmarks.metadata && $(BIN)/python -m benchmarks.metadata --sweep \
	  && $(BIN)/python -m benchmarks.metadata.rolling
	$(BIN)/python -m benchmarks.page

dist: setup ## build the source distribution, and from it the wheel, into dist/
	rm -rf dist build .pkg/quorumlog.egg-info
	$(BIN)/python -m build --no-isolation .

lock: setup ## resolve the dependencies anew into requirements.lock, for every system and Python
	$(BIN)/uv pip compile pyproject.toml --extra spark --extra dev --extra docs --universal --python-version 3.11 \
	  --no-emit-index-url --no-header --no-annotate --upgrade --quiet --output-file requirements.lock

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pkg/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis benchmarks/results demo-data spark-warehouse
	find src spark tests -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/*/_*.so src/*/_*.c
