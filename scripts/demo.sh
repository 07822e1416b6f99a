#!/usr/bin/env bash
# A small trained model reads, live, on a CPU, with nothing downloaded but packages. Leaves runs/demo/report.html.
#   bash scripts/demo.sh [options of `seer demo`]    the model that is shipped
#   bash scripts/demo.sh --train [options]           one trained from nothing before it reads: an hour or two on two cores
#   bash scripts/demo.sh --end-to-end [--out DIR]    every command of the project once, with a model that knows nothing
here="$(dirname "$0")"
road="${1:-}"
case "$road" in
  --train | --end-to-end) shift; source "$here/environment.sh" "model,train,data,eval" ;;
  *) source "$here/environment.sh" "model" ;;
esac
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# a second thread gains such small models next to nothing, and where others use its core it makes them manyfold slower
[ "$road" = --train ] || export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
case "$road" in
  --train) bash scripts/train_miniature.sh && seer demo --model runs/miniature/model "$@" ;;
  --end-to-end) python scripts/end_to_end.py "$@" ;;
  *) seer demo "$@" ;;
esac
