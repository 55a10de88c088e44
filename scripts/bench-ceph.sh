#!/usr/bin/env bash
# Measures on a private Ceph cluster that starts for it and is gone afterwards: the tests' cluster, three OSDs on this
# machine.
#
#     scripts/bench-ceph.sh DIR [OPTION...]      options are those of `sealdisk bench rbd`, such as --quick
#
# The report goes to DIR. SIZE (512M) is each disk's, COPIES (3) the pool's: /var/tmp needs room for both times 12 subjects.
# PROFILE (release) is cargo's.

set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:?usage: $0 DIR [OPTION...]}
shift
build=(cargo run --quiet --profile "${PROFILE:-release}" --package)

# Set apart by setsid(1), Ctrl-C does not reach it: the benchmark removes its images first. It ends with its input.
coproc cluster { exec setsid "${build[@]}" sealdisk-tests --example cluster; }
cluster_pid=$!
read -r -u "${cluster[0]}" first || { echo 'the cluster did not start' >&2; exit 1; }
export CEPH_CONF=${first#export CEPH_CONF=}
finish() {
    local input=${cluster[1]}
    exec {input}>&-
    wait "$cluster_pid"
}
trap finish EXIT

# More placement groups than tests need: with few, one OSD has twice the work of another.
ceph osd pool create bench 64 64 replicated --size "${COPIES:-3}"
ceph osd pool application enable bench rbd
until ceph pg stat --format json | grep --quiet '"num_pg_by_state":\[{"name":"active+clean"[^]]*}\]'; do sleep 1; done

"${build[@]}" sealdisk -- bench rbd --pool bench --size "${SIZE:-512M}" --out "$out" "$@"
