#!/bin/sh
# Checks the project and writes the plan of its changes to plan.md. Exits with 1 if there is a mistake.
set -eu
base=${1:-origin/main}

flowql validate
flowql test --junit report.xml
changes=0
flowql plan --against "$base" --format markdown > plan.md || changes=$?
case $changes in
  0) echo "no query changes" ;;
  2) cat plan.md ;;
  *) exit 1 ;;
esac
