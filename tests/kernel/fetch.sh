#!/bin/sh
# Makes FOLDER with what a small virtual machine needs: `vmlinuz`, a 6.12 kernel, and `root`, a file system with that
# kernel's modules and the programs that the tests run on it. All of it is of the Debian RELEASE, unpacked and not
# installed, from the mirror that this machine's apt is configured for; what this machine runs is left as it is.
#
# Usage: fetch.sh FOLDER RELEASE
set -eu

release=$2
kernels='^linux-image-6[.]12[.][^-]*-cloud-amd64$' # In Debian 12 one of its backports, in Debian 13 its own.
programs='busybox-static cryptsetup-bin dmsetup e2fsprogs nbd-client'
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
    echo "fetch.sh: $*" >&2
    exit 1
}

[ -e "$keyring" ] || fail "$keyring is missing: install the Debian package debian-archive-keyring"

# Nothing half made is ever found under the name FOLDER.
work=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$work"' EXIT

# An apt of its own, which believes that nothing is installed, so that it fetches every library as well.
apt="$work/apt"
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/preferences.d"
: >"$apt/status"
cat >"$apt/conf" <<END
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "$apt/preferences";
Dir::Etc::PreferencesParts "$apt/preferences.d";
Dir::State::Status "$apt/status";
Dir::State::Lists "$apt/lists";
Dir::Cache "$apt";
END

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
# Before the first `apt-get update` apt knows addresses, but not yet what is there.
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    grep -E '/debian/?$' | head -n 1)
[ -n "$mirror" ] || fail "apt is configured for no Debian mirror"
for suite in "$release" "$release-updates" "$release-backports"; do
    echo "deb [signed-by=$keyring] $mirror $suite main"
done >"$apt/sources.list"

export APT_CONFIG="$apt/conf"
apt-get -q update
kernel=$(apt-cache pkgnames linux-image-6.12 | grep -E "$kernels" | sort -V | tail -n 1)
[ -n "$kernel" ] || fail "$release has no kernel 6.12, not even in its backports"
# shellcheck disable=SC2086
apt-get -q -y --download-only install $programs
(cd "$apt/archives" && apt-get -q download "$kernel")

# Older packages have files in /lib, newer ones in /usr/lib: one folder, as on every Debian since 12.
root="$work/made/root"
for folder in bin sbin lib lib64; do
    mkdir -p "$root/usr/$folder"
    ln -s "usr/$folder" "$root/$folder"
done
for package in "$apt"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" |
        tar -x -C "$root" --keep-directory-symlink --exclude './usr/share/*' --exclude '*/gconv/*'
done
mv "$root"/boot/vmlinuz-* "$work/made/vmlinuz"
rm -r "$root/boot"

# Few modules are needed, and unpacking them is slow where they are loaded.
needed='/kernel/(arch|crypto|lib|net/core|drivers/(block|md|net/(net_failover|virtio_net)))(/|[.])'
find "$root/usr/lib/modules" -name '*.ko.xz' | grep -Ev "$needed" | xargs rm
find "$root/usr/lib/modules" -name '*.ko.xz' -exec "$root/usr/bin/busybox" unxz {} +
"$root/usr/bin/busybox" depmod -b "$root" "${kernel#linux-image-}"

# Whoever was quicker has made the same.
mv -T "$work/made" "$1" 2>/dev/null || [ -e "$1/vmlinuz" ]
