#!/usr/bin/env bash
# Run the demo: a small trained model reads documents on a CPU. Downloads only packages. Writes runs/demo/report.html.
#   bash scripts/demo.sh [options of `seer demo`]    use the included model
#   bash scripts/demo.sh --train [options]           first train a model from scratch: one to two hours on two cores
#   bash scripts/demo.sh --end-to-end [--out DIR]    run every command of the project once, with an untrained model
here="$(dirname "$0")"
variant="${1:-}"
case "$variant" in
  --train | --end-to-end) shift; source "$here/environment.sh" "model,train,data,eval" ;;
  *) source "$here/environment.sh" "model" ;;
esac
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# Such small models gain almost nothing from a second thread, and become many times slower if its core is busy.
[ "$variant" = --train ] || export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
case "$variant" in
  --train) bash scripts/train_miniature.sh && seer demo --model runs/miniature/model "$@" ;;
  --end-to-end) python scripts/end_to_end.py "$@" ;;
  *) seer demo "$@" ;;
esac
