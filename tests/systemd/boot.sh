#!/bin/sh
# What the VM with systemd does: the tests of the first boot, a reboot in the middle of a fault, the tests of the second
# boot, a power cut in the middle of a fault, the tests of the third boot, the end. Started by chaos-test.service.
export CHAOS_ENVIRONMENT=vm DEBIAN_FRONTEND=noninteractive
results=/dev/ttyS1

run() {
    # The limit is for what hangs: dpkg, cut off in the middle, would fail every test after it.
    /chaos/bin/test-runner --results=$results --limit=300 --filter="$1" /chaos/bin/systemd-tests
}

finish() {
    # Without this line, the host knows that the VM did not come to its end.
    echo "{\"exit\":$1}" >$results
    exec systemctl --no-block poweroff
}

# A machine that was installed has names; one that was bootstrapped has none.
[ -e /etc/hosts ] || printf '127.0.0.1 localhost\n::1 localhost\n' >/etc/hosts
stty -F $results raw 2>/dev/null || true
filter=$(cat /chaos/filter)
if [ -n "$filter" ]; then
    # Some tests only: all in this boot, after the package is there.
    run "$filter"
    finish $?
fi
boot=$(cat /chaos/boot 2>/dev/null || echo first)
case "$boot" in
first)
    echo second >/chaos/boot
    run first_boot
    exec systemctl --no-block reboot
    ;;
second)
    echo third >/chaos/boot
    # The mark has to outlive the power, and nothing else is helped.
    sync /chaos/boot
    run second_boot
    # What the tests said has to leave the serial port.
    sleep 1
    # At once: nothing is stopped, synced or unmounted (the kernel's admin-guide/sysrq.rst).
    echo b >/proc/sysrq-trigger
    ;;
*)
    run outlives_a_power_cut
    # A few of the kernel tests, with the installed programs, by the script that provisions the Vagrant box. On all of them
    # the other VM is spent.
    /chaos/provision.sh /chaos/this.deb /chaos/bin $results effects
    run removing_the_package
    finish $?
    ;;
esac
