# shellcheck shell=bash
# The three disks of the demonstration: a plain loop device, an AES-XTS volume and a sealed one. Each is a file in $work,
# and, while it is attached, a mounted ext4. Sourced by demo.sh.

: "${work:?is the folder that the demonstration works in}"
size=1G

# Makes the file of disk $1.
make_disk() {
    case $1 in
        plain) truncate --size "$size" "$work/plain.img" ;;
        xts) sealdisk --quiet format "$work/xts.vol" --size "$size" --cipher aes-256-xts --key-file "$work/key" ;;
        sealed) sealdisk --quiet format "$work/sealed.vol" --size "$size" --key-file "$work/key" ;;
    esac
}

# Attaches disk $1 and leaves the device's path in device[$1].
declare -A device
attach_disk() {
    case $1 in
        # As Sealdisk sets up its own: no second page cache below, and blocks of a sector.
        plain) device[$1]=$(losetup --find --show --direct-io=on --sector-size 4096 "$work/plain.img") ;;
        *) device[$1]=$(sealdisk --quiet attach "$work/$1.vol" --as fuse --name "demo-$1" --key-file "$work/key") ;;
    esac
}

detach_disk() {
    case $1 in
        plain) losetup --detach "${device[$1]}" ;;
        *) sealdisk detach "demo-$1" ;;
    esac
    unset "device[$1]"
}

mount_disk() {
    mkdir -p "$work/$1"
    mount "${device[$1]}" "$work/$1"
}

# Takes down whatever there is of disk $1, in whatever state.
give_up_disk() {
    stop_postgres "$1"
    if mountpoint --quiet "$work/$1"; then
        umount "$work/$1" || umount --lazy "$work/$1"
    fi
    # It may be attached without its device being known: attaching may have been interrupted.
    case $1 in
        plain) losetup --associated "$work/plain.img" --noheadings --output NAME | xargs --no-run-if-empty losetup --detach ;;
        *) sealdisk detach "demo-$1" ;;
    esac
}

# Debian keeps every version of PostgreSQL in a folder of its own; the newest is good.
postgres_programs=$(find /usr/lib/postgresql -path '*/bin/initdb' -printf '%h\n' | sort --version-sort | tail -n 1)

as_postgres() {
    (cd / && setpriv --reuid postgres --regid postgres --init-groups -- "$@")
}

# A program of PostgreSQL's that is a client of the server on disk $1: client DISK PROGRAM ARGUMENTS
client() {
    local disk=$1 program=$2
    PGHOST=$work/socket-$disk PGUSER=postgres PGDATABASE=postgres "$postgres_programs/$program" "${@:3}"
}

# Makes a PostgreSQL cluster on disk $1.
make_postgres() {
    install -d -o postgres -g postgres -m 0700 "$work/$1/data" "$work/socket-$1"
    as_postgres "$postgres_programs/initdb" --pgdata "$work/$1/data" --auth trust --no-locale --encoding UTF8 >/dev/null
}

start_postgres() {
    as_postgres "$postgres_programs/pg_ctl" start --silent --wait --pgdata "$work/$1/data" \
        --log "$work/socket-$1/log" --options "-c listen_addresses= -c unix_socket_directories=$work/socket-$1"
}

stop_postgres() {
    if [[ -e $work/$1/data/postmaster.pid ]]; then
        as_postgres "$postgres_programs/pg_ctl" stop --silent --mode "${2:-immediate}" --pgdata "$work/$1/data"
    fi
}
