#!/usr/bin/env bash
# Serve a checkpoint to any OpenAI client.
#   bash scripts/serve.sh CHECKPOINT                           vLLM in the server's process, port 8080
#   REPLICAS=2 bash scripts/serve.sh CHECKPOINT                two vLLM servers, one per GPU, behind `seer serve`
#   bash scripts/serve.sh CHECKPOINT --server-option max_pages=200    further options are passed to `seer serve`
# SEER_SERVER_KEYS=key,key sets API keys. VLLM_ARGS="--max-model-len 65536" passes arguments to the vLLM replicas.
set -euo pipefail
model="${1:?pass the folder of a checkpoint}"
shift
replicas="${REPLICAS:-0}"
if [ "$replicas" -eq 0 ]; then
  exec seer serve --engine vllm --model "$model" "$@"
fi
first_port="${VLLM_PORT:-8100}"
pids=()
stop() { [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true; wait; }
trap stop EXIT
trap 'exit 130' INT TERM
addresses=""
for ((n = 0; n < replicas; n++)); do
  port=$((first_port + n))
  # shellcheck disable=SC2086
  CUDA_VISIBLE_DEVICES="$n" python -m vllm.entrypoints.openai.api_server --model "$model" --host 127.0.0.1 --port "$port" --enable-prefix-caching \
    --enable-prompt-tokens-details --chat-template-content-format openai \
    --limit-mm-per-prompt '{"image": 512, "video": 0}' ${VLLM_ARGS:-} &
  pids+=($!)
  addresses+="${addresses:+,}http://127.0.0.1:$port/v1"
done
for ((n = 0; n < replicas; n++)); do
  until curl --silent --fail --output /dev/null "http://127.0.0.1:$((first_port + n))/health"; do
    kill -0 "${pids[$n]}" 2>/dev/null || { echo "error: vLLM server $n ended before it was ready; its output is above" >&2; exit 1; }
    sleep 1
  done
done
seer serve --replicas "$addresses" --model "$model" "$@"
