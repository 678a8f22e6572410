#!/usr/bin/env bash
# All checks: lint, format, types, tests. Arguments go to pytest, e.g. `bash tests/run.sh -m "not real"`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash examples/setup_venv.sh
export PATH="$PWD/.venv/bin:$PATH"

echo "== ruff check"
ruff check .
echo "== ruff format --check"
ruff format --check .
echo "== mypy"
mypy
echo "== pytest $*"
exec python -m pytest "$@"
