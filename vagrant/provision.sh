#!/bin/sh
# provision.sh PACKAGE PROGRAMS [RESULTS [FILTER...]]: installs the package, and runs the kernel tests with what it has installed,
# on this machine's kernel: all of them, or those whose names contain one of the filters. PROGRAMS is the folder of the programs
# for tests that build.sh builds. Runs as root, on a Debian that nobody needs: the Vagrant box, and the VM of
# `cargo xtask vm --systemd`, which has no network and runs this file as it is.
set -eu
package=$1
programs=$2
results=${3:-/dev/stdout}
shift "$(($# < 3 ? $# : 3))"
for filter; do
    set -- "$@" "--filter=$filter"
    shift
done
export DEBIAN_FRONTEND=noninteractive

# With these, the tests look at the kernel independently of the daemon.
observers="iproute2 iputils-ping bpftool"
if ! dpkg-query --show $observers >/dev/null 2>&1; then
    apt-get update -q
    apt-get install -y -q --no-install-recommends $observers
fi
dpkg --install "$package"
# Faults are injected only where the operator has said what the host is.
sed -i 's/^#environment = .*/environment = "test"/' /etc/chaos-daemon/policy.toml
systemctl restart chaos-daemon.service
systemctl is-active --quiet chaos-daemon.service

# Tests set the clock, and nobody else may meanwhile.
ntp=$(timedatectl show --property=NTP --value) || ntp=no
folder=$(mktemp -d)
clean_up() {
    rm -r "$folder"
    [ "$ntp" != yes ] || timedatectl set-ntp true
}
trap clean_up EXIT
[ "$ntp" != yes ] || timedatectl set-ntp false

# The one folder in which the tests look for programs: those that the package brought, and those that no package has.
for name in chaos-daemon chaosctl; do
    ln -s "/usr/bin/$name" "$folder/$name"
done
for name in chaos-daemon-failing chaos-tools chaos-worker; do
    ln -s "$programs/$name" "$folder/$name"
done

# Two programs of one executable, by their names.
for name in test-runner kernel-tests; do
    ln "$programs/chaos-tests" "$folder/$name" 2>/dev/null || cp "$programs/chaos-tests" "$folder/$name"
done

# A machine that nobody needs: nothing may be skipped, but what might not come back.
test=leases::a_fault_whose_time_is_up_while_the_machine_is_suspended_is_over_when_it_wakes
why="may-not-wake: not every hypervisor has the clock wake a machine that is suspended"
echo "kernel-tests::$test $why" >"$folder/left-out"

export CHAOS_ENVIRONMENT=vm CHAOS_BIN_DIR="$folder"
# Emulated, a test takes several times as long as on a real processor.
"$folder/test-runner" --results="$results" --limit=240 --leave-out="$folder/left-out" "$@" "$folder/kernel-tests"
