#!/usr/bin/env bash
# Every bench, one after the other, with the machine it ran on: a table and JSON lines in runs/bench/<date>/.
#   bash scripts/bench_all.sh                              all, the quick forms: some ten minutes
#   bash scripts/bench_all.sh --full                       all, whole: an hour or two
#   bash scripts/bench_all.sh bench_render bench_train     only these
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
python scripts/bench/run_benches.py "$@"
