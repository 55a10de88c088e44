#!/usr/bin/env bash
# The main job, shown: PostgreSQL on a sealed volume, beside the same on AES-XTS and on no encryption at all.
#
#     scripts/demo.sh [SEALDISK]      the program to show; by default the one that `make` built
#
# Needs root for loop devices and mounts. Everything it makes is in one folder under /var/tmp, and is gone when it ends,
# however it ends.

set -euo pipefail

here=$(dirname "$(realpath "$0")")
sealdisk_program=$(realpath "${1:-$here/../target/release/sealdisk}")

# What is attached is noted in the demonstration's own folder: disks of this machine are neither seen nor touched.
sealdisk() { SEALDISK_RUNTIME_DIR=$work/run "$sealdisk_program" "$@"; }

work=$(mktemp -d /var/tmp/sealdisk-demo.XXXXXX)
chmod 755 "$work"
# shellcheck source=scripts/demo/disks.sh
source "$here/demo/disks.sh"

clean_up() {
    local status=$?
    trap '' INT TERM HUP # one is enough
    set +e
    for disk in plain xts sealed; do give_up_disk "$disk"; done 2>/dev/null
    rm -rf --one-file-system "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

bold='' plain_text=''
if [[ -t 1 ]]; then bold=$'\e[1m' plain_text=$'\e[0m'; fi

step() { printf '\n%s%s%s\n' "$bold" "$*" "$plain_text"; }
note() { printf '  %s\n' "$@"; }
indent() { sed 's/^/    /'; }
# Shows a command and what it prints, with short names for the paths.
show() {
    printf '  $ %s\n' "$*" | shorten
    "$@" 2>&1 | shorten | indent
}
shorten() { sed "s|$work/||g"; }

rows=1000 # changed by the update; scattered over the table

step '1. A sealed volume in a file, attached as a disk, with ext4 on it'
head --bytes 32 /dev/urandom >"$work/key"
show sealdisk format "$work/sealed.vol" --size "$size" --key-file "$work/key"
printf '  $ sealdisk attach sealed.vol --name demo-sealed --key-file key\n'
attach_disk sealed
note "  ${device[sealed]}"
show mkfs.ext4 -q "${device[sealed]}"
mount_disk sealed
note "$(findmnt --noheadings --output SOURCE,FSTYPE,SIZE "$work/sealed")"

step '2. Two more disks to compare with: AES-XTS without seals (plain LUKS2), and a loop device without encryption'
for disk in xts plain; do
    make_disk "$disk"
    attach_disk "$disk"
    mkfs.ext4 -q "${device[$disk]}"
    mount_disk "$disk"
    note "$(findmnt --noheadings --output SOURCE,FSTYPE,SIZE "$work/$disk")"
done

step '3. A PostgreSQL on each, filled by pgbench (1 million accounts)'
for disk in plain xts sealed; do
    make_postgres "$disk"
    start_postgres "$disk"
    client "$disk" pgbench --initialize --scale 10 --quiet 2>/dev/null
    note "$disk: $(client "$disk" psql --no-align --tuples-only \
        --command "select pg_size_pretty(pg_database_size('postgres')) || ' in ' || split_part(version(), ' (', 1)")"
    stop_postgres "$disk" fast
done

step '4. Transactions per second (pgbench, 8 clients; two rounds of 6 seconds each, in turn)'
declare -A sum
for round in 1 2; do
    for disk in plain xts sealed; do
        start_postgres "$disk"
        client "$disk" psql --quiet --command checkpoint
        tps=$(client "$disk" pgbench --client 8 --jobs 2 --time 6 2>/dev/null | sed -n 's/^tps = \([0-9]*\).*/\1/p')
        sum[$disk]=$((${sum[$disk]:-0} + tps))
        note "round $round, $disk: $tps"
        stop_postgres "$disk" fast
    done
done
share() { printf '%d %%' $((100 * sum[$1] / sum[plain])); }
note '' "no encryption          $((sum[plain] / 2))"
note "AES-XTS, no seals      $((sum[xts] / 2))  $(share xts)"
note "sealed                 $((sum[sealed] / 2))  $(share sealed)"

step "5. What a thief of two snapshots sees: $rows rows are updated, and the raw files compared"
for disk in xts sealed; do
    start_postgres "$disk"
    table=$work/$disk/data/$(client "$disk" psql -At -c "vacuum pgbench_accounts" \
        -c "checkpoint" -c "select pg_relation_filepath('pgbench_accounts')" | tail -n 1)
    stop_postgres "$disk" fast
    sync --file-system "$work/$disk"
    filefrag -b4096 -e "$table" >"$work/$disk.extents"
    umount "$work/$disk"
    detach_disk "$disk"
    cp --reflink=auto --sparse=always "$work/$disk.vol" "$work/$disk.before"

    attach_disk "$disk"
    mount_disk "$disk"
    start_postgres "$disk"
    client "$disk" psql --quiet --command \
        "update pgbench_accounts set abalance = abalance + 1 where aid % (1000000 / $rows) = 0"
    stop_postgres "$disk" fast
    umount "$work/$disk"
    detach_disk "$disk"
    sealdisk info --json "$work/$disk.vol" >"$work/$disk.info"
    printf '  %-8s' "$disk:"
    "$here/demo/raw_sectors.py" compare "$work/$disk.before" "$work/$disk.vol" "$work/$disk.info" "$work/$disk.extents"
    rm "$work/$disk.before"
done
note 'Under AES-XTS a sector that is written again with what it held does not change at all; sealed, it does.'

step '6. One bit of the sealed file is flipped, in the table of accounts'
sector=$("$here/demo/raw_sectors.py" flip "$work/sealed.vol" "$work/sealed.info" "$work/sealed.extents")
note "flipped in sector $sector"
attach_disk sealed
mount_disk sealed
start_postgres sealed
query() {
    printf '  postgres=# %s;\n' "$1"
    client sealed psql -At --command "$1" 2>&1 | indent || true
}
query 'select sum(abalance) from pgbench_accounts'
note 'Everything else still reads:'
query 'select count(*) from pgbench_accounts where aid > 500000'
query 'select count(*) from pgbench_history'
stop_postgres sealed fast
note 'The log of the volume says which sector it was:'
grep 'not authentic' "$work/run/demo-sealed/log" | shorten | indent
umount "$work/sealed"
detach_disk sealed
show sealdisk check "$work/sealed.vol" --key-file "$work/key" || true
note 'The bit is flipped back:'
"$here/demo/raw_sectors.py" flip "$work/sealed.vol" "$work/sealed.info" "$work/sealed.extents" >/dev/null
show sealdisk check "$work/sealed.vol" --key-file "$work/key"

step "Done in $SECONDS seconds. Everything is taken down and removed."
