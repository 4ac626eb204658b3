# The commands used daily. Everything runs in .venv; `make setup` makes it.
BIN = .venv/bin

.PHONY: setup check fast test thorough release-check

setup: .venv/.ready
	@if command -v pre-commit >/dev/null; then pre-commit install; fi

.venv/.ready: pyproject.toml
	python3 -m venv .venv
	$(BIN)/pip install --quiet -e '.[test]'
	touch $@

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: .venv/.ready
	$(BIN)/pytest -m "not system"

test: .venv/.ready
	$(BIN)/pytest

thorough:
	.ci/thorough

release-check:
	.ci/release
