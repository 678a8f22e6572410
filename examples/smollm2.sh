#!/usr/bin/env bash
# Draft and challenge with a real pretrained model on a CPU, a few steps. All arguments go to smollm2.py.
#
#   bash examples/smollm2.sh [--steps 2] [--seed 0] [--rerun] [--out outputs/smollm2]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
bash "$root/examples/setup_venv.sh"
PYTHONPATH="$root" exec "$root/.venv/bin/python" -m examples.smollm2 "$@"
