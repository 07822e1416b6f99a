#!/usr/bin/env bash
# The tests: makes .venv where none is active, installs, lints, types, runs the suite. Arguments go to pytest.
#   bash scripts/test.sh                 the whole suite but for what is marked slow
#   bash scripts/test.sh -m slow         only that
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
# a second thread gains such small models next to nothing, and where others use its core it makes them manyfold slower
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
if [ $# -eq 0 ]; then
  ruff check .
  ruff format --check .
  mypy
fi
python -m pytest "$@"
