#!/usr/bin/env bash
# The checks of this repository. The first arguments choose which, the others go to pytest:
#
#   bash tests/run.sh                   everything, about an hour on two cores
#   bash tests/run.sh lint              ruff, mypy and the import contract
#   bash tests/run.sh unit              tests/unit: plain Python, about a minute
#   bash tests/run.sh sandbox           tests/sandbox: programs and answers judged in processes of their own
#   bash tests/run.sh stack             tests/stack: against verl, vLLM and Ray as libraries
#   bash tests/run.sh real              tests/real: verl, Ray and vLLM started for real
#   bash tests/run.sh unit stack -k lock
#   bash tests/run.sh tests/stack/test_package.py
#
# `lint` and `unit` alone need only the small environment of requirements-unit.txt. It is made in .venv-unit, unless
# the full environment, .venv, is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chosen=()
while [[ ${1:-} =~ ^(lint|unit|sandbox|stack|real)$ ]]; do
  chosen+=("$1")
  shift
done
if ((${#chosen[@]} + $# == 0)); then chosen=(lint unit sandbox stack real); fi

venv=.venv environment=cpu
if [[ ${chosen[*]} =~ ^(lint|unit)( (lint|unit))*$ && ! -e .venv/.agon-stamp ]]; then
  venv=.venv-unit environment=unit
fi
bash examples/setup_venv.sh "$environment"
export PATH="$PWD/$venv/bin:$PATH"

folders=()
for name in "${chosen[@]}"; do
  if [[ $name != lint ]]; then
    folders+=("tests/$name")
    continue
  fi
  echo "== ruff check" && ruff check .
  echo "== ruff format --check" && ruff format --check .
  echo "== mypy" && mypy
  echo "== lint-imports" && lint-imports --no-logo
done
if ((${#folders[@]} + $# == 0)); then exit 0; fi

if [[ ${folders[*]} == tests/unit ]] && ! (($#)); then
  echo "== pytest tests/unit, on all cores"
  exec python -m pytest --numprocesses auto tests/unit
fi
# Starting verl keeps little more than one core busy, so most of the runs have a process of their own.
runs=(tests/real/test_{pair_run,methods,resume,reward_model,self_check}.py)
if (($#)) || [[ " ${chosen[*]} " != *" real "* ]]; then
  echo "== pytest ${folders[*]} $*"
  exec python -m pytest "${folders[@]}" "$@"
fi
log="$(mktemp)" status=0
set -m # so that the process in the background can be interrupted, and ends its runs
python -m pytest "${runs[@]}" >"$log" 2>&1 &
set +m
trap 'kill -INT %1 2>/dev/null && wait; rm -f "$log"' EXIT
echo "== pytest ${folders[*]} without ${runs[*]}"
python -m pytest "${folders[@]}" "${runs[@]/#/--ignore=}" || status=$?
if ((status == 2)); then exit 2; fi # interrupted
echo "== pytest ${runs[*]}, started at the same time"
wait %1 || status=$?
cat "$log"
exit "$status"
