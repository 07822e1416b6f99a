#!/usr/bin/env bash
# The tests: makes .venv where none is active, installs, lints, types, runs the suite. Arguments go to pytest.
#   bash scripts/test.sh                 the whole suite but for what is marked slow
#   bash scripts/test.sh -m slow         only that
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
if [ $# -eq 0 ]; then
  ruff check .
  ruff format --check .
  mypy
fi
python -m pytest "$@"
