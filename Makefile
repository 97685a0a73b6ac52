# `make prove` measures the example; `make test` runs the tests, `make lint` the checks of the code.
#   PYTHON=python3.12   another interpreter (3.11 or newer)
#   REQUIRE=1           fail, instead of skip, a test whose tool is not installed
#   TESTS="-k gate"     arguments for pytest; without any, two processes run all tests but the thorough ones
#   UV=no               set up with pip, even where uv is installed
#   TORCH=default       PyTorch from the configured index; without it, the CPU build where PyTorch's index answers
PYTHON ?= python3
TESTS ?=
export UV ?= yes

SOURCES := pyproject.toml $(shell find src -name '*.py' 2>/dev/null)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --progress-bar off

.PHONY: prove test lint bench dist docs pictures clean

# An environment that is active would be the measured one.
prove: .venv/.ready
	VIRTUAL_ENV='$(CURDIR)/.venv' PATH='$(CURDIR)/.venv/bin':"$$PATH" bareboat prove examples/digits.toml --output report.html

test: .venv-test/.ready
	.venv-test/bin/pytest $(if $(REQUIRE),--require) $(or $(TESTS),-n 2 --dist loadfile)

lint: .venv-test/.ready
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/shfmt --diff src
	.venv-test/bin/mypy
	.venv-test/bin/lint-imports --no-cache

# The wheel and the source archive, built with the tools that the tests have, and checked by installing the wheel.
dist: .venv-test/.ready
	rm -rf dist
	.venv-test/bin/python -m hatchling build -d dist
	.venv-test/bin/python -m venv --clear build/dist-check
	build/dist-check/bin/python $(PIP_INSTALL) dist/*.whl
	build/dist-check/bin/bareboat --version
	test -e build/dist-check/share/man/man1/bareboat-run.1

# The documentation as a site in site/, which needs no network to be read.
docs: .venv-docs/.ready
	.venv-docs/bin/python docs/tools/build_site.py site

# The recording and the screenshots of the landing page: about six minutes; requires Chromium and
# the programs of local clusters (tests/lab/cluster/install-clusters.sh). REPEATS=2 only tries it.
pictures: .venv-docs/.ready
	.venv-docs/bin/python docs/tools/record.py docs/pictures/session.svg build/report.html
	.venv-docs/bin/python docs/tools/screenshot.py build/report.html docs/pictures/report.png

bench: .venv/.ready
	.venv/bin/python bench/start.py
	.venv/bin/python bench/imports.py
	.venv/bin/python bench/verdict.py

.venv/.ready: $(SOURCES) $(wildcard locks/*.txt)
	@$(MAKE) --no-print-directory venv VENV=.venv INSTALL='.[study,example]' LEAN=yes

.venv-test/.ready: pyproject.toml $(wildcard locks/*.txt)
	@$(MAKE) --no-print-directory venv VENV=.venv-test INSTALL='-e .[study,example,test]'

.venv-docs/.ready: $(SOURCES) locks/docs.txt
	@$(MAKE) --no-print-directory venv VENV=.venv-docs INSTALL='.[study,docs]' LOCK=locks/docs.txt

# Exact versions with their hashes; docs/testing.md describes how to renew them.
LOCK = locks/$(if $(findstring test,$(INSTALL)),test,$(if $(findstring study,$(INSTALL)),run,core)).txt

.PHONY: venv
venv:
	@PYTHON='$(PYTHON)' TORCH='$(if $(findstring example,$(INSTALL)),$(or $(TORCH),cpu),no)' \
	  MAKECMDGOALS='$(MAKECMDGOALS)' LEAN='$(LEAN)' locks/install.sh $(VENV) $(LOCK) $(INSTALL)
	@touch $(VENV)/.ready

clean:
	rm -rf .venv .venv-test .venv-docs report.html build dist site
