#!/bin/bash
# install-packages PACKAGE…: Debian packages, with nothing but them left behind.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# PostgreSQL's package would make a cluster in the image; who starts the image makes one.
mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
mkdir -p /usr/share/man/man1 /usr/share/man/man7 # some packages insist on it, and slim images have none
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /usr/share/doc/* /usr/share/locale/* /var/log/*.log
