# Sourced by the other scripts. Creates .venv if no environment is active, and installs the project with the given extras.
#   source scripts/environment.sh "model,train,data"
# Nothing is installed if pyproject.toml has not changed since the last installation into this environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extras="${1:?extras, comma-separated}"
if [ -z "${VIRTUAL_ENV:-}" ]; then
  if [ ! -x .venv/bin/python ]; then
    for python in python3.13 python3.12 python3.11 python3; do
      "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    done || { echo "error: Python 3.11 or newer is needed and none was found" >&2; exit 2; }
    "$python" -m venv .venv
  fi
  # shellcheck disable=SC1091
  source .venv/bin/activate
fi
stamp="$VIRTUAL_ENV/.seer-$(printf '%s' "$PWD $extras" | cat - pyproject.toml | sha256sum | cut -c1-16)"
if [ ! -e "$stamp" ]; then
  echo "installing seer-vlm[$extras] into $VIRTUAL_ENV (a few minutes the first time)"
  # torch and torchvision must both be CPU builds or both CUDA builds, or neither can be imported. Keep installed CPU builds.
  held="$(mktemp)" output="$(mktemp)"
  python -m pip list --format freeze 2>/dev/null | { grep -E '^torch(vision)?==.*\+cpu$' || true; } > "$held"
  if grep -q '^torch==' "$held" && ! grep -q '^torchvision==' "$held"; then
    echo "error: a CPU build of torch is installed without torchvision, and pip would install torchvision as a CUDA build (5 GB)" >&2
    echo "  install the CPU build of torchvision with $VIRTUAL_ENV/bin/pip, as \"Get started\" on pytorch.org describes" >&2
    exit 2
  fi
  # pip's output is shown only if the installation fails.
  if ! { python -m pip install --quiet --upgrade pip && python -m pip install --quiet -c "$held" -e ".[$extras]"; } > "$output" 2>&1; then
    cat "$output" >&2
    echo "error: pip could not install seer-vlm[$extras]; its output is above" >&2
    exit 1
  fi
  rm -f "$held" "$output"
  touch "$stamp"
fi
