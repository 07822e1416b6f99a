#!/usr/bin/env bash
# Test training through verl in a separate environment, because verl needs other versions of transformers.
#   bash scripts/test_verl.sh [FOLDER]        creates the environment in FOLDER (default .venv-verl) and keeps it
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.venv-verl}
if [[ ! -x $folder/bin/pytest ]]; then
  "${PYTHON:-python3}" -m venv "$folder"
  "$folder/bin/pip" install --quiet --upgrade pip
  "$folder/bin/pip" install --quiet "verl[verl-core]==0.9.1" "transformers>=5.5.3,<5.11" "torch>=2.9,<2.16" torchvision \
    pyarrow pytest pytest-timeout hypothesis safetensors
  "$folder/bin/pip" install --quiet --no-deps --editable .
  "$folder/bin/pip" install --quiet "pydantic>=2.9,<3" "pypdfium2>=4.30,<6" "reportlab>=4.2,<6" "pillow>=10.4" rich tomli-w typer
fi
SEER_REQUIRE_VERL=1 OMP_NUM_THREADS=1 "$folder/bin/python" -m pytest tests/train/test_verl.py tests/train/model/test_model.py tests/train/model/test_layers.py
