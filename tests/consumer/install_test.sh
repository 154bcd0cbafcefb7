#!/usr/bin/env bash
# Installs a build into an empty folder and builds the consumer against it there: install_test.sh BUILD SOURCE
set -eu
build=$1 source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --prefix "$folder/installed" >/dev/null
cp "$source"/tests/consumer/CMakeLists.txt "$source"/tests/consumer/main.cpp "$folder"
cmake -S "$folder" -B "$folder/build" -G Ninja -DCMAKE_PREFIX_PATH="$folder/installed" >/dev/null
cmake --build "$folder/build"
test "$("$folder/build/consumer" "$source/traces/basics/pool_reuse.json")" = "4096 bytes, 15 operations"
"$folder/installed/bin/emmctl" --version

# Nothing is installed that is not public; packages_test.py looks at the headers.
libraries=$(find "$folder/installed" -name '*.a' | wc -l)
test "$libraries" = 1 || { echo "$libraries static libraries: expected libemmctl.a alone"; exit 1; }
