# Sourced by the other scripts: makes .venv where no environment is active, and installs the project with its extras.
#   source scripts/environment.sh "model,train,data"
# An environment that holds what pyproject.toml asked for when it was last installed is used as it is.
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
  # torch and torchvision of one kind, CPU or CUDA, or neither can be imported; what is there of the CPU's stays
  held="$(mktemp)" said="$(mktemp)"
  python -m pip list --format freeze 2>/dev/null | { grep -E '^torch(vision)?==.*\+cpu$' || true; } > "$held"
  if grep -q '^torch==' "$held" && ! grep -q '^torchvision==' "$held"; then
    echo "error: a CPU build of torch is installed without torchvision, which pip would bring as a CUDA build with 5 GB behind it" >&2
    echo "  install torchvision's CPU build beside it, as pytorch.org's \"Get started\" says, with $VIRTUAL_ENV/bin/pip" >&2
    exit 2
  fi
  # what pip says of a build that went well is nothing to read
  if ! { python -m pip install --quiet --upgrade pip && python -m pip install --quiet -c "$held" -e ".[$extras]"; } > "$said" 2>&1; then
    cat "$said" >&2
    echo "error: pip could not install seer-vlm[$extras]; what it said stands above" >&2
    exit 1
  fi
  rm -f "$held" "$said"
  touch "$stamp"
fi
