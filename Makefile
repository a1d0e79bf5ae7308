# Everything a newcomer needs: `make compare` runs the main job, `make test` checks the project.
# Both first do the set-up (`make install`), once, again only when what is installed changes.
PYTHON ?= python3
BIN := .venv/bin
OLDEST := .venv-oldest/bin

.PHONY: compare test test-oldest install bench clean

compare: .venv/installed
	$(BIN)/python compare.py

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

# The engine's tests once more, with the oldest transformers the project accepts.
test-oldest: .venv-oldest/installed
	$(OLDEST)/python -m pytest tests/real

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[learn,real,test]'
	touch $@

.venv-oldest/installed: pyproject.toml constraints.txt constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	$(OLDEST)/python -m pip install --quiet --constraint constraints-oldest.txt --editable '.[learn,real,test]'
	touch $@

clean:
	rm -rf .venv .venv-oldest
