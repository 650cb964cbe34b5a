# Everything installs what it needs into .venv; Python 3.11 or newer is all that must be there.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test slow browser check docs clean

demo: .venv/ready
	$(BIN)/vcrl demo

test: .venv/ready
	$(BIN)/python -m pytest

slow: .venv/ready browser
	$(BIN)/python -m pytest -m slow

# The browser in which the report page is tested: Debian's, or one that CHROMIUM names.
browser:
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null) \
		|| (echo 'no chromium, and apt-get cannot install it: install one, and name it with CHROMIUM=/path' >&2; exit 1)

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

docs: .venv/ready
	$(BIN)/python -m vcrl.methods.show > docs/methods.md.new
	mv docs/methods.md.new docs/methods.md

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vcrl needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .jax-cache .pytest_cache .ruff_cache .hypothesis
