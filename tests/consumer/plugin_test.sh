#!/usr/bin/env bash
# What a plugin's author does, from an installed emmctl in an empty folder: begins a project in each language, builds it,
# runs its test, and the commands of its README: plugin_test.sh BUILD
set -eu
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$build" --prefix "$folder/installed" >/dev/null
export PATH=$folder/installed/bin:$PATH
cd "$folder"
for language in c c++; do
  name=mine-${language/c++/cxx}
  emmctl plugin new "$name" --language "$language" >/dev/null
  cmake -S "$name" -B "$name/build" -G Ninja >/dev/null
  cmake --build "$name/build"
  ctest --test-dir "$name/build" --output-on-failure --no-tests=error
  LD_LIBRARY_PATH=$name/build emmctl replay "$name/first.json" --manager "$name" --device sim --verify
done
test -f installed/lib*/libemm.so || test -f installed/lib/*/libemm.so
