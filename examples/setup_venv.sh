#!/usr/bin/env bash
# Makes an environment in the repository root from a lock file, or does nothing when it is up to date.
#
#   bash examples/setup_venv.sh         .venv from requirements-cpu.txt: everything, on the CPU (3 GB)
#   bash examples/setup_venv.sh unit    .venv-unit from requirements-unit.txt: the linters and tests/unit (750 MB)
#
# PYTHON=/path/to/python3.11 picks the interpreter; TORCH_CPU_INDEX=url replaces PyTorch's CPU wheel index (a mirror).
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"

case ${1:-cpu} in
  cpu) venv="$root/.venv" lock=requirements-cpu.txt cost="about 3 minutes and 3 GB the first time" ;;
  unit) venv="$root/.venv-unit" lock=requirements-unit.txt cost="about a minute and 750 MB the first time" ;;
  *) echo "usage: bash examples/setup_venv.sh [cpu|unit]" >&2 && exit 2 ;;
esac
log="$venv/setup.log"
stamp="$venv/.agon-stamp"           # what was installed; written last
unfinished="$venv/.agon-unfinished" # there while files are being written: what a killed run leaves behind
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { echo "setup_venv: $*"; }
die() { say "error: $*" >&2; exit 1; }

# $root is part of it because scripts in .venv/bin hold absolute paths: a moved checkout needs a new environment.
fingerprint() {
  "$venv/bin/python" -V
  echo "$root"
  { cat "$lock" setup.py; grep __version__ agon_verl/__init__.py; } | sha256sum
}

up_to_date() { [[ -f $stamp && ! -e $unfinished ]] && [[ "$(fingerprint 2>/dev/null)" == "$(<"$stamp")" ]]; }

is_python311() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
    if is_python311 "$candidate"; then echo "$candidate"; return; fi
    [[ $candidate != "${PYTHON:-}" ]] || die "PYTHON=$PYTHON is not a Python 3.11; unset it or point it at one."
  done
  die "no Python 3.11 found ($lock holds wheels for 3.11 only). Install one, e.g. 'apt install python3.11" \
    "python3.11-venv', 'pyenv install 3.11' or 'uv python install 3.11', or set PYTHON=/path/to/python3.11."
}

# Usable: a 3.11 with pip, made at this path, and not left half-written.
usable() {
  [[ ! -e $unfinished ]] && is_python311 "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1 &&
    { [[ ! -f $stamp ]] || grep -qxF "$root" "$stamp"; }
}

# pip, with its output in the log (the last call's only) and a line of progress now and then.
pip_install() {
  "$venv/bin/python" -m pip install --no-deps --no-build-isolation --progress-bar off "$@" 2>&1 | tee "$log" |
    awk -v total="$total" '
      /^ *(Collecting|Processing|Requirement already satisfied:) / && ++n % 40 == 0 {
        print "  " n " of " total " packages"; fflush()
      }
      /^Installing collected packages/ && n > 40 { print "  writing them to the environment"; fflush() }'
}

# A download that fails has changed nothing, so the next run may go on from here; a failure later starts afresh.
failed() {
  grep -q '^Installing collected packages' "$log" || rm -f "$unfinished"
  tail -n 15 "$log" >&2
  die "$1 All of pip's output is in $log. Once the cause is gone run this script again: it repairs what is there."
}

if up_to_date; then exit 0; fi

[[ "$(uname -s)/$(uname -m)" =~ ^Linux/(x86_64|aarch64)$ ]] ||
  die "$lock holds wheels for Linux on x86_64 or aarch64; this is $(uname -s) on $(uname -m). Use a Linux container."

# One set-up at a time; the lock lives on the folder itself and ends with this process.
if command -v flock >/dev/null; then
  exec 9<"$root"
  flock -n 9 || { say "another set-up is running here, waiting for it"; flock 9; }
  if up_to_date; then exit 0; fi
fi

started=$SECONDS
if ! usable; then
  python="$(find_python)"
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "$python cannot make environments (no venv module). Install it, e.g. 'apt install python3.11-venv'."
  say "making ${venv##*/} with $("$python" -V)"
  "$python" -m venv --clear "$venv" || die "could not make $venv; is the disk full or read-only?"
fi

total=$(grep -c '^[^#]' "$lock")
rm -f "$stamp"
touch "$unfinished"
say "installing $total packages ($cost)"

# setuptools first: the one source distribution in the lock and this package are built with it, without isolation.
pip_install "$(grep '^setuptools==' "$lock")" || failed "pip could not install setuptools."

# Some machines have the CPU build of torch under its plain name; elsewhere it comes from PyTorch's index, and only it.
torch="$(grep '^torch==' "$lock" || true)"
torch_index="${TORCH_CPU_INDEX:-https://download.pytorch.org/whl/cpu}"
if [[ $torch ]]; then
  pip_install "$torch" || pip_install --extra-index-url "$torch_index" "$torch" ||
    failed "pip found $torch neither in its configured index nor in $torch_index."
fi

pip_install -r "$lock" || failed "pip could not install $lock."
pip_install -e . || failed "pip could not install this package."

fingerprint >"$stamp"
rm -f "$unfinished"
say "done in $((SECONDS - started)) s: $venv"
