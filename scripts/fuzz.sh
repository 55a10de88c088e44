#!/usr/bin/env bash
# Runs every fuzz target for a while.
#
#     scripts/fuzz.sh [RUNS]      inputs for each target; by default enough to notice what broke, in about a minute each
#
# The targets are built with the stable compiler and libFuzzer's coverage, without a sanitizer: what they drive is safe
# Rust, whose checks and debug assertions are on. For longer hunts, with AddressSanitizer: `cargo +nightly fuzz run NAME`.

set -euo pipefail
cd "$(dirname "$0")/../fuzz"

runs=${1:-100000}
host=$(rustc --version --verbose | sed -n 's/^host: //p')
target=$(realpath "${CARGO_TARGET_DIR:-target}")/fuzz

coverage=(-Cpasses=sancov-module)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    coverage+=("-Cllvm-args=-sanitizer-coverage-$option")
done
# Given for a target of its own, the flags are not used for build scripts.
RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 ${coverage[*]}" CARGO_TARGET_DIR=$target \
    cargo build --quiet --release --bins --target "$host"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for source in fuzz_targets/*.rs; do
    name=$(basename "$source" .rs)
    mkdir -p "corpus/$name" "artifacts/$name"
    seeds=()
    if [[ -d seeds/$name ]]; then seeds=("seeds/$name"); fi
    if ! "$target/$host/release/$name" -runs="$runs" -timeout=60 -rss_limit_mb=2048 \
        -artifact_prefix="artifacts/$name/" "corpus/$name" "${seeds[@]}" 2>"$log"; then
        tail -n 40 "$log" >&2
        echo "fuzz $name: failed; the input lies in fuzz/artifacts/$name" >&2
        exit 1
    fi
    echo "fuzz $name: $(sed -n 's/^Done \([0-9]*\) runs.*/\1 runs/p' "$log"), ok"
done
