#!/usr/bin/env bash
# Makes the Debian package from this build, puts it into a root, and uses it there.
#   package_test.sh extracted SOURCE BUILD   the root is what `dpkg -x` extracts; the libraries beside it are this machine's
#   package_test.sh installed SOURCE BUILD   a bare Debian, made by mmdebstrap, in which apt installs package and dependencies
# Exits with 77 if no bare Debian can be made here, or if a tool is missing.
set -euo pipefail
how=$1
source=$2
build=$3
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
# Users to which apt drops root's privileges must also read the package.
chmod 755 "$work"

fail() {
  echo "package_test: $*" >&2
  exit 1
}
skip() {
  echo "skipped: $*"
  exit 77
}

if [ "$how" = installed ]; then
  if ! command -v mmdebstrap >/dev/null; then skip "there is no mmdebstrap (scripts/setup --long)"; fi
  if [ $EUID -ne 0 ]; then skip "only root can make a bare Debian"; fi
fi

# The caller is in another folder, names both folders relative to it, and creates files that others cannot
# read.
ln -s "$build" "$work/build"
if ! package=$(cd "$work" && umask 077 && "$source/scripts/package" --build build --output . 2>"$work/warnings" | tail -1); then
  grep "there is no .* (Debian's package" "$work/warnings" && skip "a tool is missing"
  fail "scripts/package makes no package: $(<"$work/warnings")"
fi
field() { dpkg-deb --field "$package" "$1"; }
control_file() { dpkg-deb --ctrl-tarfile "$package" | tar -xO "./$1"; }

# --- what scripts/package reports of the build -----------------------------------------------------------------

[[ $package == "$work"/*.deb ]] || fail "the package is in '$package', not in the caller's folder $work"
architectures=$(sed -n 's/^VDNN_CUDA_ARCHITECTURES:STRING=//p' "$build/CMakeCache.txt")
if [ -n "$architectures" ]; then
  grep -q "VDNN_CUDA_ARCHITECTURES=$architectures only" "$work/warnings" || fail "no warning that there are kernels for $architectures only"
elif [ -s "$work/warnings" ]; then
  fail "scripts/package warns: $(<"$work/warnings")"
fi

# --- the package's description ---------------------------------------------------------------------------------

version=$(sed -n 's/^project(vdnn VERSION \([0-9.]*\) .*/\1/p' "$source/CMakeLists.txt")
[ "$(field Package) $(field Version)" = "vdnn $version" ] || fail "the package is called $(field Package) $(field Version)"
field Depends | grep -q libdnnl || fail "the package does not depend on oneDNN: $(field Depends)"
files=$(dpkg-deb --contents "$package" | awk '{ print $6 }')
for file in usr/bin/vdnn usr/include/vdnn/session.h usr/share/man/man1/vdnn.1.gz usr/share/doc/vdnn/CHANGELOG.md \
  usr/share/bash-completion/completions/vdnn usr/share/zsh/vendor-completions/_vdnn \
  usr/share/fish/vendor_completions.d/vdnn.fish; do
  grep -qxF "./$file" <<<"$files" || fail "$file is not in the package"
done
grep -q 'vdnnConfig\.cmake$' <<<"$files" || fail "the CMake package is not in the package"
if grep -v '^\./\(usr/.*\)\?$' <<<"$files"; then fail "the package has files outside /usr"; fi
modes='^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx) '
if dpkg-deb --contents "$package" | grep -vE "$modes"; then fail "not all users can read these files"; fi
for script in postinst postrm; do
  control_file "$script" | grep -q ldconfig || fail "$script does not make the libraries known to the loader"
done
if control_file triggers 2>/dev/null | grep ldconfig; then fail "ldconfig runs a second time, by a trigger"; fi

# --- the root --------------------------------------------------------------------------------------------------

root=$work/root
if [ "$how" = extracted ]; then
  dpkg -x "$package" "$root"
  if grep -aom1 "$source/[ -~]*" "$root/usr/bin/vdnn"; then fail "the command contains paths of the machine that built it"; fi
  in_root() {
    local program=$1
    shift
    LD_LIBRARY_PATH=$root/usr/lib "$root/usr/bin/$program" "$@"
  }
  # The package depends exactly on what it was built with, which is installed here.
  field Depends | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g' >"$work/dependencies"
  dpkg-query -W -f '${db:Status-Status} ${Package} ${Provides}\n' | sed -n 's/^installed //p' | sed 's/([^)]*)//g' |
    tr -s ', ' '\n' | sort -u >"$work/installed"
  while read -r dependency; do
    grep -qxF "$dependency" "$work/installed" || fail "the package depends on $dependency, with which it was not built"
  done <"$work/dependencies"
else
  install -m 644 "$package" "$work/vdnn.deb"
  # The hook runs in the bare Debian, while mmdebstrap still makes the archive available.
  cat >"$work/hook" <<END
#!/bin/sh
set -e
touch "$work/bare"
cp "$work/vdnn.deb" "\$1/tmp/"
chroot "\$1" apt-get install --yes --no-install-recommends /tmp/vdnn.deb
END
  chmod +x "$work/hook"
  if ! mmdebstrap --quiet --variant=apt --customize-hook="$work/hook" --hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount \
    bookworm "$root" >"$work/log" 2>&1; then
    tail -5 "$work/log"
    if [ -e "$work/bare" ]; then fail "apt does not install the package in a bare Debian"; fi
    skip "mmdebstrap cannot make a bare Debian here"
  fi
  in_root() { chroot "$root" "$@"; }
fi

# --- the root's contents work ----------------------------------------------------------------------------------

[ "$(in_root vdnn --version | head -1 | cut -d, -f1)" = "vdnn $version" ] || fail "vdnn --version prints $(in_root vdnn --version)"
arguments=(train --model lenet --batch 8 --steps 4 --data synthetic --device cpu --policy all --threads 1 --seed 3)
weights() { sed -n 's/^weights //p'; }
expected=$("$build/vdnn" "${arguments[@]}" | weights)
actual=$(in_root vdnn "${arguments[@]}" | weights)
[ -n "$expected" ] && [ "$actual" = "$expected" ] || fail "the package trains to '$actual', the build to '$expected'"
echo "$how: ${package##*/} trains lenet to $actual"
