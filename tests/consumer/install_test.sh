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
test "$("$folder/build/consumer")" = "4096 bytes"
"$folder/installed/bin/emmctl" --version
