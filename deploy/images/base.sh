#!/usr/bin/env bash
# Builds the base image without an image registry: Debian bookworm with Java and Python, by debootstrap.
#
#   deploy/images/base.sh reconciler-base:bookworm       as root, with debootstrap and a Docker daemon
#   BASE=reconciler-base:bookworm docker compose build
#
# Packages come from MIRROR, else from this machine's source for bookworm, else from Debian. The image trusts the
# certificate authorities that were added to this machine (/usr/local/share/ca-certificates), because builds use the
# same network.
# With a file name that ends in .tar instead of a tag, the script writes that archive, for `docker import`.
set -euo pipefail

target=${1:?the name of the image to make, or of the archive}
places=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null || true)
known=$(awk '$1 == "bookworm" && !found++ {print $2}' <<<"$places")
mirror=${MIRROR:-${known:-http://deb.debian.org/debian}}
packages=openjdk-17-jre-headless,python3,ca-certificates

# Use memory if there is room: debootstrap syncs to disk after every file.
room=${TMPDIR:-/tmp}
if [ -w /dev/shm ] && [ "$(df --output=avail -m /dev/shm | tail -1)" -ge 2000 ] \
  && [ "$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)" -ge 4000 ]; then
  room=/dev/shm
fi
root=$(mktemp -d "$room/base.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT

debootstrap --variant=minbase --include="$packages" bookworm "$root" "$mirror" >"$root.log" 2>&1 || {
  tail -20 "$root.log" "$root/debootstrap/debootstrap.log" >&2 || true
  rm -f "$root.log"
  exit 1
}
rm -f "$root.log"

cat >"$root/etc/apt/sources.list" <<END
deb $mirror bookworm main
deb $mirror bookworm-updates main
END
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
  # Java builds its own list of them and needs /proc for that, so /proc is mounted for that command only.
  unshare --mount sh -ec 'mount -t proc proc "$1/proc"; chroot "$1" update-ca-certificates' - "$root" >/dev/null 2>&1
fi
chmod 755 "$root"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,locale,man,info}/* "$root"/var/log/*

pack() { tar -C "$root" --one-file-system --numeric-owner -c .; }
case $target in
  *.tar) pack >"$target.part" && mv "$target.part" "$target" ;;
  *) pack | docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' - "$target" ;;
esac
