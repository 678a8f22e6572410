#!/usr/bin/env bash
# The quickstart, from a bare clone: environment, toy model, training, report. All arguments go to quickstart.py.
#
#   bash examples/quickstart.sh [--steps 20] [--seed 0] [--rerun] [--out outputs/quickstart]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
bash "$root/examples/setup_venv.sh"
PYTHONPATH="$root" exec "$root/.venv/bin/python" -m examples.quickstart "$@"
