#!/usr/bin/env bash
# Simulates two machines with network namespaces. Each machine has its own host name and address, and only a network
# connects them. Two ranks on each machine train together, and end with the weights of one rank that accumulates.
#   machines_test.sh VDNN
# If namespaces cannot be made, exits with status 77 and the reason.
set -euo pipefail
vdnn=$1

skip() {
  echo "skipped: $1"
  exit 77
}

for command in mpirun ip unshare; do
  command -v "$command" >/dev/null || skip "there is no $command"
done
[[ $EUID -eq 0 ]] || skip "network namespaces are root's to make"

name=vdnn$$ # prefix of the names below: an interface's name has at most 15 characters
directory=$(mktemp -d)
cleanup() {
  ip netns del "${name}a" 2>/dev/null || true
  ip netns del "${name}b" 2>/dev/null || true
  rm -rf "$directory"
}
trap cleanup EXIT

make_machine() { # which, address
  ip netns add "$name$1" 2>"$directory/why" || skip "no network namespace can be made: $(cat "$directory/why")"
  ip link set "$name$1" netns "$name$1"
  ip -n "$name$1" address add "$2/24" dev "$name$1"
  ip -n "$name$1" link set "$name$1" up
  ip -n "$name$1" link set lo up
}
ip link add "${name}a" type veth peer name "${name}b" 2>"$directory/why" ||
  skip "no interface can be made: $(cat "$directory/why")"
make_machine a 10.211.7.1
make_machine b 10.211.7.2

# A replacement for ssh, which runs a command on the other machine.
cat >"$directory/remote" <<END
#!/usr/bin/env bash
shift
exec ip netns exec ${name}b unshare --uts bash -c "hostname ${name}b; \$*"
END
chmod +x "$directory/remote"

options=(--device cpu --model fashion-vgg --data synthetic --batch 4 --threads 1 --memory 64MiB --steps 5)
weights() { sed -n 's/.*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$1"; }

"$vdnn" train "${options[@]}" --accumulate 4 --json "$directory/alone"
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # MPI leaks, from components that it has unloaded at exit
ip netns exec "${name}a" unshare --uts bash -c 'hostname "$0"; exec "$@"' "${name}a" \
  timeout -k 10 200 mpirun --allow-run-as-root --oversubscribe --bind-to none --mca plm_rsh_agent "$directory/remote" \
  --host 10.211.7.1:2,10.211.7.2:2 -np 4 "$vdnn" train "${options[@]}" --json "$directory/together"

grep -q '"machines":2' "$directory/together" || {
  echo "the ranks do not see two machines: $(cat "$directory/together")"
  exit 1
}
[[ -n $(weights "$directory/alone") && $(weights "$directory/together") == "$(weights "$directory/alone")" ]] || {
  echo "other weights: $(weights "$directory/together"), alone $(weights "$directory/alone")"
  exit 1
}
