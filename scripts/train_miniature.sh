#!/usr/bin/env bash
# Train the miniature from random weights in nine stages on a CPU. On one core it finds and answers single facts after
# 20 minutes (stage 4), and finishes within 100 minutes.
#   bash scripts/train_miniature.sh [seed]          writes runs/miniature/model
#   bash scripts/train_miniature.sh [seed] iso      also the control: the same data without select turns, in runs/miniature/iso-model
# After an interruption, run it again to continue. Each model folder contains training.json, a summary of all stages.
# runs/miniature/evaluation/report.html shows the learning curve and the controls.
source "$(dirname "$0")/environment.sh" "model,train,data,eval"
export TOKENIZERS_PARALLELISM=false
seed="${1:-0}"
runs=runs/miniature

train() { # arguments: stage, run folder, further settings
  [ -d "$2/model" ] && return
  echo "$2: $(sed -n 's/^# The miniature, stage . of 9: //p' "configs/miniature-$1.toml")"
  seer-train run "configs/miniature-$1.toml" --set "out=$2" --set "seed=$seed" "${@:3}"
}

python -m seer.miniature.curriculum "$runs" --seed "$seed"
for stage in 1 2 3 4 5 6 7 8 9; do
  train "$stage" "$runs/stage-$stage"
done
python -m seer.miniature.curriculum "$runs" --finish model
evaluate=(seer eval miniature --model "$runs/model" --n 100 --seed "$seed" --report --out "$runs/evaluation")
if [ "${2:-}" = iso ]; then
  without='data.drop_turns=["call", "observation"]'
  train 4 "$runs/iso-4" --set "$without"
  for stage in 5 6 7 8 9; do
    train "$stage" "$runs/iso-$stage" --set "$without" --set "model.path=$runs/iso-$((stage - 1))/model"
  done
  python -m seer.miniature.curriculum "$runs" --finish iso-model
  evaluate+=(--iso-model "$runs/iso-model")
fi
"${evaluate[@]}"
