#!/usr/bin/env bash
# Measure which lines the tests run, in every process that they start, and print a table by file and one by package.
#   bash scripts/coverage.sh                     the suite without the slow tests
#   bash scripts/coverage.sh tests/protocol      arguments go to pytest
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
# A second thread hardly speeds up such small models and slows them down on a shared core.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
out="$PWD/runs/coverage"
rm -rf "$out"
mkdir -p "$out"
export COVERAGE_FILE="$out/data"
status=0
python -m coverage run -m pytest "$@" || status=$?
python -m coverage combine --quiet
python -m coverage report --show-missing | tee "$out/files.txt"
printf '\n%-24s %7s %7s %7s\n' Package Lines Missing Covered
awk '$1 ~ /\.py$/ { n = split($1, part, "/"); name = n > 2 ? part[1] "/" part[2] : part[1]; lines[name] += $2; missing[name] += $3 }
  END { for (name in lines) printf "%-24s %7d %7d %6.1f%%\n", name, lines[name], missing[name],
    lines[name] ? 100 - 100 * missing[name] / lines[name] : 100 }' "$out/files.txt" | sort
exit "$status"
