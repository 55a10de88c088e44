#!/usr/bin/env bash
# The whole suite. Tests mount file systems and set up loop devices, so their programs run as root; nothing else does.

set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step 'format'
cargo fmt --all --check
cargo fmt --manifest-path fuzz/Cargo.toml --check

# One profile for everything, so that nothing is compiled twice.
step 'lints'
cargo clippy --quiet --workspace --all-targets --profile test -- --deny warnings

step 'tests'
if [[ $EUID -ne 0 ]]; then
    host=$(rustc --version --verbose | sed -n 's/^host: //p')
    runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER
    export "$runner=sudo --preserve-env env PATH=$PATH"
fi
cargo test --workspace --no-fail-fast

step 'fuzz targets'
scripts/fuzz.sh
