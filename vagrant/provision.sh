#!/bin/sh
# provision.sh PACKAGE PROGRAMS [RESULTS [FILTER]]: installs the package, and runs the kernel tests with what it has installed,
# on this machine's kernel. PROGRAMS is the folder of test-runner and kernel-tests. Runs as root, on a Debian that nobody
# needs: the Vagrant box, and the VM of `cargo xtask vm --systemd`, which has no network and runs this file as it is.
set -eu
package=$1
programs=$2
results=${3:-/dev/stdout}
filter=${4:-}
export DEBIAN_FRONTEND=noninteractive

# With these, the tests look at the kernel independently of the daemon.
observers="iproute2 iputils-ping bpftool"
if ! dpkg-query --show $observers >/dev/null 2>&1; then
    apt-get update -q
    apt-get install -y -q --no-install-recommends $observers
fi
dpkg --install "$package"
systemctl is-active --quiet chaos-daemon.service

# A kernel of our own, on which nothing may be skipped; and the programs that the package brought.
export CHAOS_ENVIRONMENT=vm CHAOS_BIN_DIR=/usr/bin
exec "$programs/test-runner" --results="$results" --limit=120 --filter="$filter" "$programs/kernel-tests"
