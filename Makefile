# Everything a fresh machine needs is made by these targets; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# What Python has compiled of the sources is kept, also where it is told not to: the tests are several processes, which
# start others.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help quickstart check test test-ray long lint style types tests format requirements clean

help:
	@echo "make quickstart    train for about a minute, evaluate, write a replay beside a trained agent"
	@echo "make check         lint, types and the quick tests: while working"
	@echo "make test          lint, types and every test: before a commit is shared"
	@echo "make test-ray      a sweep on a Ray cluster of two nodes, one of which is killed"
	@echo "make long          the tests for every further method, game and setting"
	@echo "make format        ruff's fixes and formatting"
	@echo "make requirements  rewrite requirements.txt from pyproject.toml"
	@echo "make clean         remove what the other targets made"

# Trains Adversarial Surprise for about a minute on two cores, lets it play against random actions, and shows it beside
# an agent of the zoo. Turns of 8 steps in small rooms: what is learnt first, to leave the room, is learnt soonest there.
QUICK := --steps 600k --bodies 64 --set rollout=128 --set env.max_side=6 --set env.grid=19 --set env.fixed_boxes=true \
	--set method.k_explore=8 --set method.k_control=8
quickstart: $(STAMP)
	$(BIN)/advsurprise train --env rooms/four $(QUICK) --out runs/quickstart
	$(BIN)/advsurprise eval runs/quickstart --episodes 100
	$(BIN)/advsurprise replay runs/quickstart zoo:rooms-four
	@echo "On the left is what you have just trained, on the right zoo:rooms-four after 3M steps, in the same rooms."
	@echo "Random actions hardly ever leave the first room; yours mostly opens a door and enters a second, the zoo's goes on to a third."

# Compiled programs, however small, are kept from one check to the next.
check: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.cache/jax
check: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
check: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q -m "not slow and not long and not ray"

# Types are checked while the tests run: each alone leaves a core idle for a while.
test: style
	$(MAKE) --no-print-directory --jobs 2 types tests

# Three processes for two cores: tests that wait for others leave room.
tests: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 15 -m "not long and not ray"

# Apart from the others: it starts some ten processes, and waits more than it computes.
test-ray: $(STAMP)
	$(BIN)/python -m pytest --durations 3 -m ray tests/training/test_ray.py

# What `make test` leaves out: the same tests for the other methods, games and settings.
long: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 15 -m long

lint: style types

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml requirements.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'advsurprise needs Python 3.11 or newer')"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $(STAMP)

# Rewrites the exact versions from the lower bounds in pyproject.toml.
requirements:
	rm -rf .venv-fresh && $(PYTHON) -m venv .venv-fresh
	.venv-fresh/bin/python -m pip install --quiet --upgrade pip
	.venv-fresh/bin/python -m pip install --quiet . --group dev
	.venv-fresh/bin/python -m pip freeze --exclude advsurprise | grep -v ' @ ' > requirements.txt
	rm -rf .venv-fresh build

clean:
	rm -rf .venv .cache build .pytest_cache .ruff_cache
