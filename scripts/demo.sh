#!/usr/bin/env bash
# The main job from end to end, on a CPU, with nothing downloaded but packages. Leaves runs/demo/report.html.
source "$(dirname "$0")/environment.sh" "model,train,data,eval"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
python scripts/demo.py "$@"
