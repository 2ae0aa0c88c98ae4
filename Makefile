# Everything that labkit needs is set up in .venv by the first command that you give.
#
#   make report    run the main report and name the HTML file that it wrote
#   make lab       open the labs in JupyterLab
#   make test      check the code and run every test
#   make check     only ruff and mypy
#   make bench     the real models with and without batching, quick
#   make doctor    look this machine over
#   make clean     remove .venv; the cache folder with the weights stays
#
# PYTHON names another Python (3.11 or newer), NAME another report; ARGS goes to the command at the end.

PYTHON ?= python3
NAME ?= 90_report_batching
ARGS ?=

# pip shows only errors, and leaves compiling to the first import: that halves the wait, and little is imported at once.
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt
LAB := $(VENV)/.with-lab
TEST := $(VENV)/.with-test

.PHONY: help report lab test check bench doctor clean
.DELETE_ON_ERROR:

help:
	@sed -n '/^#   make/s/^#   //p' Makefile

report: $(LAB)
	@$(RUN)/labkit fetch > /dev/null
	@$(RUN)/labkit report $(NAME) $(ARGS)

lab: $(LAB)
	@$(RUN)/labkit lab $(ARGS)

bench: $(LAB)
	@$(RUN)/labkit bench batching --quick $(ARGS)

doctor: $(LAB)
	@$(RUN)/labkit doctor

test: check
	@scripts/install_browser.sh
	$(RUN)/python -m pytest -q $(ARGS)

check: $(TEST)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

clean:
	rm -rf $(VENV)

# A stamp is older than the files that it depends on until they change, so a second call installs nothing.
$(LAB): pyproject.toml constraints.txt | $(RUN)/python
	@echo "Setting up labkit in $(VENV) (a few minutes, once) ..."
	@$(PIP) --editable '.[lab]'
	@touch $@

$(TEST): pyproject.toml constraints.txt | $(RUN)/python
	@echo "Setting up labkit and its test tools in $(VENV) (a few minutes, once) ..."
	@$(PIP) --editable '.[test]'
	@touch $(LAB) $@

$(RUN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "labkit needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "No environment could be made; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
