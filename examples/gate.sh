#!/usr/bin/env bash
# A gate in front of a deployment: gate.sh SUBJECT [OPTIONS of gemma-doctor check]
#
#   examples/gate.sh ./my-gemma --expect gemma-3-270m && deploy ./my-gemma
#
# It lets a subject through only if it was examined, a report was written, and nothing was found at --fail-on. Exit codes are those of gemma-doctor: 0 healthy,
# 1 sick, 2 could not be examined, 130 interrupted. The report stays in gemma-doctor-report.json, or where GATE_REPORT says.
set -euo pipefail

if [ $# -eq 0 ]; then
  echo "usage: gate.sh SUBJECT [OPTIONS of gemma-doctor check]" >&2
  exit 2
fi
subject=$1
shift
report=${GATE_REPORT:-gemma-doctor-report.json}
rm -f -- "$report" # an old one must not pass for this run's

# Real weights and strict skips: a gate must not open because nothing ran. What stands in "$@" comes later, and wins.
code=0
gemma-doctor check --weights real --strict-skips --format json --output "$report" "$@" -- "$subject" || code=$?
# --help and the like end with 0 as well, and have examined nothing
if [ "$code" = 0 ] && [ ! -s "$report" ]; then code=2; fi

case $code in
  0) echo "gate: open for $subject" ;;
  1) echo "gate: closed, $subject is sick; see $report" >&2 ;;
  2) echo "gate: closed, $subject could not be examined; nothing is known of it" >&2 ;;
  130) echo "gate: closed, interrupted" >&2 ;;
  *) echo "gate: closed, gemma-doctor itself ended with $code" >&2 ;;
esac
exit "$code"
