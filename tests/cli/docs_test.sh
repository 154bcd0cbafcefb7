#!/usr/bin/env bash
# The commands of README.md and the docs, run with an installed emmctl: docs_test.sh BUILD SOURCE
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$1" --prefix "$folder/installed" >/dev/null
python3 "$(dirname "$0")/docs_test.py" "$folder/installed/bin/emmctl" "$2" "$folder/installed"
