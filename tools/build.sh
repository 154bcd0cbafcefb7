# What tools/emmctl and tools/test share; sourced, with the repository's root as the current folder.

# Installs the Debian packages that are missing: at once as root, else prints the command and ends.
# $1: "tests" for those of the tests too.
need_packages() {
  command -v dpkg-query >/dev/null || return 0  # not a Debian: configuring says what is missing
  local wanted missing
  wanted=$(sed -e '/^# The tests/,$ { '"$([ "${1:-}" = tests ] && echo '' || echo d)"' }' -e '/^#/d' tools/packages)
  missing=$(for package in $wanted; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done)
  [ -n "$missing" ] || return 0
  missing=$(echo $missing)
  if [ "$(id -u)" != 0 ]; then
    echo "emmctl: Debian packages are missing; install them with" >&2
    echo "    sudo apt-get install $missing" >&2
    exit 2
  fi
  echo "emmctl: installing $missing" >&2
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -y -q --no-install-recommends $missing; } >&2 || exit 2
}

# Configures and builds, with ninja's progress on stderr; says nothing where nothing has changed.
# $1: preset; $2: target; further arguments go to cmake when it configures.
build() {
  local preset=$1 target=$2 folder=build/$1
  shift 2
  mkdir -p build
  exec 9>build/.lock-"$preset"
  flock 9  # two runs at once build once
  if [ ! -f "$folder/build.ninja" ] || [ $# -gt 0 ]; then
    cmake --preset "$preset" "$@" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log" >&2; exit 2; }
    grep -h 'No CUDA toolkit' "build/configure-$preset.log" | sed 's/^-- /emmctl: /' >&2 || true
  fi
  case "$(ninja -C "$folder" -n "$target" 2>/dev/null)" in
    *"no work to do"*) ;;
    *) ninja -C "$folder" "$target" >&2 || exit 2 ;;
  esac
  exec 9>&-
}
