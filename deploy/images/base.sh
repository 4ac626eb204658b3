#!/usr/bin/env bash
# Makes the base image where no registry of images can be reached: Debian bookworm with Java and Python, by debootstrap.
#
#   deploy/images/base.sh reconciler-base:bookworm       as root, with debootstrap and a Docker daemon
#   BASE=reconciler-base:bookworm docker compose build
#
# It takes packages from MIRROR, else from where this machine takes those of bookworm, else from Debian; and it trusts
# the certificate authorities that were added to this machine (/usr/local/share/ca-certificates), as its builds go
# through the same network.
# With a file name instead of a tag (one that ends in .tar) it writes that archive, for `docker import`.
set -euo pipefail

target=${1:?the name of the image to make, or of the archive}
places=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null || true)
known=$(awk '$1 == "bookworm" && !found++ {print $2}' <<<"$places")
mirror=${MIRROR:-${known:-http://deb.debian.org/debian}}
packages=openjdk-17-jre-headless,python3,ca-certificates

# In memory where there is room: debootstrap waits for the disk after every file.
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
  # Java's own list of them is made by Java, which needs /proc: mounted for that command alone.
  unshare --mount sh -ec 'mount -t proc proc "$1/proc"; chroot "$1" update-ca-certificates' - "$root" >/dev/null 2>&1
fi
chmod 755 "$root"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,locale,man,info}/* "$root"/var/log/*

pack() { tar -C "$root" --one-file-system --numeric-owner -c .; }
case $target in
  *.tar) pack >"$target.part" && mv "$target.part" "$target" ;;
  *) pack | docker import --change 'ENV LANG=C.UTF-8' --change 'CMD ["bash"]' - "$target" ;;
esac
