#!/usr/bin/env bash
# Run labkit's GPU paths on this machine and print one JSON: devices, versions, ceilings, and each check by name.
# Needs Python 3.11 or newer with torch and numpy; no Jupyter. Under six minutes; --quick is a rehearsal.
#
#   scripts/gpu_check.sh [--quick] [--device cuda:0] [--json FILE]
#
# PYTHON names the Python to use.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec "${PYTHON:-python3}" scripts/gpu_check.py "$@"
