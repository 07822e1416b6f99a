#!/usr/bin/env bash
# Install the project (into .venv if no environment is active), then run linter, type checker and tests.
#   bash scripts/test.sh                 all tests except those marked slow
#   bash scripts/test.sh -m slow         only the slow tests; arguments go to pytest, without linter and type checker
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,formats,heic,ocr,dev"
# Such small models gain almost nothing from a second thread, and become many times slower if its core is busy.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
if [ $# -eq 0 ]; then
  ruff check .
  ruff format --check .
  mypy
fi
python -m pytest "$@"
