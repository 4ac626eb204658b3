#!/bin/bash
# install-packages PACKAGE…: installs Debian packages and removes caches, documentation and logs.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# PostgreSQL's package would create a cluster in the image; the container creates one when it starts.
mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
mkdir -p /usr/share/man/man1 /usr/share/man/man7 # some packages require these folders, and slim images lack them
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /usr/share/doc/* /usr/share/locale/* /var/log/*.log
