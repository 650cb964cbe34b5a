# Everything installs what it needs into .venv; Python 3.11 or newer is all that must be there.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo demo-control test slow drills fuzz browser gl check docs clean

demo: .venv/ready
	$(BIN)/vcrl demo

# The same with continuous actions.
demo-control: .venv/ready
	$(BIN)/vcrl demo --games reach --out demo-control

test: .venv/ready gl
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

slow: .venv/ready browser gl
	$(BIN)/python -m pytest -m slow

# Things that go wrong for real, and a table of what was survived.
# The clock jumps by libfaketime, or in Python alone where that cannot be had.
drills: .venv/ready gl
	@ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || apt-get install -y -qq libfaketime >/dev/null 2>&1 || true
	$(BIN)/python tests/drills

# Every loader against spoilt files and words, for so many minutes, with new random seeds.
MINUTES ?= 10
fuzz: .venv/ready
	$(BIN)/python tests/fuzz $(MINUTES)

# The browser in which the report page is tested: Debian's, or one that CHROMIUM names.
browser:
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null) \
		|| (echo 'no chromium, and apt-get cannot install it: install one, and name it with CHROMIUM=/path' >&2; exit 1)

# What DeepMind Control draws its pictures with: whatever is there, else Mesa's software renderer.
gl: .venv/ready
	@$(BIN)/python -m vcrl.envs.rendering 2>/dev/null \
		|| (apt-get update -qq && apt-get install -y -qq libosmesa6 >/dev/null && $(BIN)/python -m vcrl.envs.rendering) \
		|| (echo 'no OpenGL, and apt-get cannot install it: install libosmesa6, or libegl1 for a GPU' >&2; exit 1)

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

docs: .venv/ready
	$(BIN)/python -m vcrl.methods.show > docs/methods.md.new
	mv docs/methods.md.new docs/methods.md
	$(BIN)/python -m vcrl.bench.results page

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vcrl needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .jax-cache .pytest_cache .ruff_cache .hypothesis
