#!/usr/bin/env bash
# From nothing to a model that selects and answers: five stages on a CPU, about half an hour on two cores.
#   bash scripts/train_miniature.sh [seed]
# Leaves runs/miniature/model, and runs/miniature/evaluation/report.html with the learning curve. Interrupt it anywhere; run
# it again and it continues.
source "$(dirname "$0")/environment.sh" "model,train,data,eval"
export TOKENIZERS_PARALLELISM=false
seed="${1:-0}"
python -m seer.miniature.curriculum runs/miniature --seed "$seed"
for stage in 1 2 3 4 5; do
  [ -d "runs/miniature/stage-$stage/model" ] && continue
  echo "stage $stage: $(sed -n 's/^# The miniature, stage . of 5: //p' "configs/miniature-$stage.toml")"
  seer-train run "configs/miniature-$stage.toml" --set "seed=$seed"
done
python -m seer.miniature.curriculum runs/miniature --finish
seer eval miniature --model runs/miniature/model --n 100 --seed "$seed" --report --out runs/miniature/evaluation
