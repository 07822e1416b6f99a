#!/usr/bin/env bash
# Build the API reference from docstrings: runs/docs/index.html, with a search over all names.
#   bash scripts/docs.sh [FOLDER]
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,docs"
python scripts/build_docs.py "${1:-runs/docs}"
