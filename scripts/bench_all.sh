#!/usr/bin/env bash
# Run all benches one after the other. Writes a table and JSON lines, with a description of the machine, to
# runs/bench/<date>/.
#   bash scripts/bench_all.sh                              the quick form of every bench: about ten minutes
#   bash scripts/bench_all.sh --full                       the full form: one to two hours
#   bash scripts/bench_all.sh bench_render bench_train     only these benches
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
python scripts/bench/run_benches.py "$@"
