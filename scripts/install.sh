#!/usr/bin/env bash
# Installs the Debian packages that are missing, and says what else is.
#
#     scripts/install.sh build|demo|test
#
# Nothing is asked and nothing is started: servers that come with a package stay off.

set -euo pipefail

build=(build-essential clang libclang-dev libcryptsetup-dev pkg-config)
demo=(e2fsprogs fuse3 mount postgresql python3-minimal util-linux)
test=(
    # Databases and file systems on sealed volumes.
    dosfstools mariadb-client mariadb-server redis-server redis-tools sqlite3 xfsprogs
    # Other implementations of what we implement.
    cryptsetup-bin fio gocryptfs libnbd-bin nbdkit python3-libnbd python3-pip python3-venv qemu-block-extra
    qemu-system-common qemu-utils
    # A Ceph cluster. Its servers are started by the tests, each cluster in a folder of its own.
    ceph-common ceph-mgr ceph-mon ceph-osd
    # A virtual machine with a kernel of Debian's.
    debian-archive-keyring qemu-system-x86
    # What is held against the command line, and what counts its system calls.
    bash diffutils fdisk fish groff-base strace zsh
)

case ${1:-} in
    build) wanted=("${build[@]}") ;;
    demo) wanted=("${build[@]}" "${demo[@]}") ;;
    test) wanted=("${build[@]}" "${demo[@]}" "${test[@]}") ;;
    *) echo "usage: $0 build|demo|test" >&2; exit 1 ;;
esac

root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "this needs root: $*" >&2
        return 1
    fi
}

is_installed() { [[ $(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# Lets apt start no servers, in the way that invoke-rc.d(8) asks for, unless the machine has a policy of its own.
policy=/usr/sbin/policy-rc.d
install_packages() {
    echo "Installing Debian packages: $*"
    if [[ ! -e $policy ]]; then
        trap 'root rm -f "$policy"' EXIT
        root install -m 755 /dev/stdin "$policy" <<<$'#!/bin/sh\nexit 101'
    fi
    root apt-get -qq update
    root env DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install "$@" >/dev/null
}

missing=()
for package in "${wanted[@]}"; do
    is_installed "$package" || missing+=("$package")
done
if ! command -v cargo >/dev/null && ! is_installed rustup && [[ -n $(apt-cache madison rustup) ]]; then
    missing+=(rustup) # Debian has it from version 13 on
fi
if [[ ${#missing[@]} -gt 0 ]]; then
    install_packages "${missing[@]}"
fi

# The compiler: Debian's own is too old.
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
if command -v rustup >/dev/null && ! cargo --version >/dev/null 2>&1; then
    rustup default stable
fi
found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || true
if [[ $(printf '%s\n' "$needed" "${found:-0}" | sort --version-sort | head -n 1) != "$needed" ]]; then
    echo "Rust $needed or newer is needed, and ${found:+only }${found:-none} is installed. See https://rustup.rs: install" \
        "rustup, then run 'rustup default stable'." >&2
    exit 1
fi
if [[ $1 == test ]] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
    rustup component add clippy rustfmt
fi
