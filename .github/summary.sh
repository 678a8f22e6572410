#!/usr/bin/env bash
# Runs a command, copies the end of its output to the summary of a GitHub job, and keeps its exit status.
set -uo pipefail
log="$(mktemp)"
"$@" 2>&1 | tee "$log"
status=$?
{
  echo "### \`$*\`: exit status $status"
  echo '```'
  tail -n 40 "$log"
  echo '```'
} >>"$GITHUB_STEP_SUMMARY"
exit "$status"
