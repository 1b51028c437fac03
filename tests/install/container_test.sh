#!/usr/bin/env bash
# Builds the container file and runs the image if docker or podman works; otherwise only lints the file.
#   container_test.sh SOURCE lint|build
set -euo pipefail
cd "$1"
file=Containerfile

fail() {
  echo "container_test: $*" >&2
  exit 1
}

if [ "$2" = build ]; then
  for engine in docker podman; do
    if command -v "$engine" >/dev/null && "$engine" info >/dev/null 2>&1; then
      "$engine" build --quiet -t vdnn-container-test -f "$file" .
      trap '"$engine" rmi -f vdnn-container-test >/dev/null' EXIT
      "$engine" run --rm vdnn-container-test plan --model lenet --batch 8 --device cpu
      exit 0
    fi
  done
  echo "skipped: neither docker nor podman works here"
  exit 77
fi

# Joins each instruction on one line, and removes comments.
instructions=$(sed -e '/^#/d' "$file" | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta' | sed '/^ *$/d')

while read -r name _; do
  case "$name" in
    FROM | COPY | WORKDIR | RUN | USER | ENTRYPOINT | CMD) ;;
    *) fail "unknown instruction $name" ;;
  esac
done <<<"$instructions"

# Every base is named debian:NUMBER, without a registry, so the settings of docker or podman determine the registry.
grep '^FROM' <<<"$instructions" | while read -r _ base _; do
  [[ $base =~ ^debian:[0-9]+(-slim)?$ ]] || fail "base $base"
done
# COPY names only stages defined earlier, and only folders that exist.
stages=' '
while read -r name first second rest; do
  case "$name $first" in
    FROM*) if [[ "$second $rest" =~ ^AS\ ([a-z]+) ]]; then stages+="${BASH_REMATCH[1]} "; fi ;;
    COPY\ --from=*) [[ $stages == *" ${first#--from=} "* ]] || fail "no stage ${first#--from=} before COPY" ;;
    COPY*) [ -e "$first" ] || fail "$first is copied, but does not exist" ;;
  esac
done <<<"$instructions"
# Scripts of RUN instructions exist and know their arguments.
scripts=$(grep '^RUN' <<<"$instructions" | grep -o 'scripts/[a-z-]*') || fail "no RUN instruction runs a script"
for script in $scripts; do [ -x "$script" ] || fail "$script cannot be run"; done
grep -q -- '--output FOLDER' scripts/package || fail "scripts/package has no --output"
# The base is a bare Debian, so scripts/package must request its tools from apt before it uses them. In this
# PATH nothing is installed, and apt-get records what is requested and fails.
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
for command in bash dirname env; do ln -s "$(command -v "$command")" "$bare/"; done
program() {
  { echo '#!/bin/bash' && cat; } >"$bare/$1"
  chmod +x "$bare/$1"
}
program dpkg-query <<<'exit 1'
program sudo <<<'exec "$@"'
program apt-get <<END
[ "\$1" = update ] && exit
echo "\$@" >"$bare/asked-for"
exit 1
END
if PATH=$bare scripts/package >"$bare/log" 2>&1; then fail "scripts/package succeeds although nothing is installed"; fi
[ -e "$bare/asked-for" ] || fail "scripts/package requests nothing from apt: $(tail -1 "$bare/log")"
tools=$(sed -n 's/^ *for tool in \(.*\); do$/\1/p' scripts/package)
[ -n "$tools" ] || fail "scripts/package has no list of tools"
for tool in $tools; do
  [[ " $(<"$bare/asked-for") " == *" ${tool#*:} "* ]] ||
    fail "scripts/package needs ${tool%:*}, but scripts/setup does not request ${tool#*:} from apt"
done
# The last stage starts the command, and not as root. The build context has no build folders.
last=$(sed -n '/^FROM/h; /^FROM/!H; ${x; p}' <<<"$instructions")
grep -q '^USER nobody$' <<<"$last" || fail "the command runs as root"
grep -q '^ENTRYPOINT \["vdnn"\]$' <<<"$last" || fail "the image does not start vdnn"
grep -qx '/build/' .dockerignore || fail "build folders are part of the build context"
echo "$file is in order; it was not built"
