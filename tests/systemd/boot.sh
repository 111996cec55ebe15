#!/bin/sh
# What the VM with systemd does: the tests of the first boot, a reboot in the middle of a fault, the tests of the second
# boot, the end. Started by chaos-test.service.
export CHAOS_ENVIRONMENT=vm DEBIAN_FRONTEND=noninteractive
results=/dev/ttyS1

run() {
    /chaos/bin/test-runner --results=$results --limit=120 --filter="$1" /chaos/bin/systemd-tests
}

stty -F $results raw 2>/dev/null || true
filter=$(cat /chaos/filter)
if [ -n "$filter" ]; then
    # Some tests only: all in this boot, after the package is there.
    run "$filter"
    echo "{\"exit\":$?}" >$results
    exec systemctl --no-block poweroff
fi
if [ ! -e /chaos/rebooted ]; then
    touch /chaos/rebooted
    run first_boot
    exec systemctl --no-block reboot
fi
run second_boot
# Without this line, the host knows that the VM did not come to its end.
echo "{\"exit\":$?}" >$results
exec systemctl --no-block poweroff
