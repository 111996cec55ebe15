#!/bin/sh
# What the VM with systemd does: the tests of the first boot, a reboot in the middle of a fault, the tests of the second
# boot, a power cut in the middle of a fault, the tests of the third boot, two reboots and a panic by faults, the end. Started by
# chaos-test.service.
export CHAOS_ENVIRONMENT=vm DEBIAN_FRONTEND=noninteractive
results=/dev/ttyS1

# Its programs are one executable, each by its own name.
for name in $(/chaos/bin/chaos-tests); do
    [ -e "/chaos/bin/$name" ] || ln /chaos/bin/chaos-tests "/chaos/bin/$name"
done

# The tests whose names contain one of the arguments; of these every so manieth, if that is asked for.
run() {
    for name; do
        set -- "$@" "--filter=$name"
        shift
    done
    # The limit is for what hangs: dpkg, cut off in the middle, would fail every test after it.
    /chaos/bin/test-runner --results=$results $partition "$@" /chaos/bin/systemd-tests
}

# What the Vagrant box does, with the kernel tests whose names contain one of the arguments; without any, with all.
provision() {
    /chaos/provision.sh /chaos/this.deb /chaos/bin $results "$@"
}

finish() {
    # Without this line, the host knows that the VM did not come to its end.
    echo "{\"exit\":$1}" >$results
    exec systemctl --no-block poweroff
}

# A stage that ends with a fault that takes the machine down, and what the next boot is to do.
going_down() {
    echo "$2" >/chaos/boot
    # The mark has to outlive a panic, and nothing else is helped.
    sync /chaos/boot
    run "going_down::$1"
    sleep 120
    echo "going_down::$1: the machine is still up" >&2
    finish 1
}

# A machine that was installed has names; one that was bootstrapped has none.
[ -e /etc/hosts ] || printf '127.0.0.1 localhost\n::1 localhost\n' >/etc/hosts
stty -F $results raw 2>/dev/null || true
partition=
filters=$(cat /chaos/filters)
case "$filters" in
'' | going_down | boots) ;;
--partition=*)
    # A part of all that needs no other boot.
    partition=$filters
    run first_boot second_boot_guard removing_the_package
    finish $?
    ;;
provision)
    provision
    finish $?
    ;;
*)
    # Some tests only: all in this boot, after the package is there.
    # No name has a space in it.
    run $filters
    finish $?
    ;;
esac
boot=$(cat /chaos/boot 2>/dev/null || echo first)
[ "$boot $filters" != 'first going_down' ] || boot=reboot
case "$boot" in
first)
    echo second >/chaos/boot
    case "$filters" in
    '') run first_boot ;;
    *) run first_boot::installing first_boot::reboot ;;
    esac
    exec systemctl --no-block reboot
    ;;
second)
    echo third >/chaos/boot
    # The mark has to outlive the power, and nothing else is helped.
    sync /chaos/boot
    case "$filters" in
    '') run second_boot ;;
    *) run second_boot:: ;;
    esac
    # What the tests said has to leave the serial port.
    sleep 1
    # At once: nothing is stopped, synced or unmounted (the kernel's admin-guide/sysrq.rst).
    echo b >/proc/sysrq-trigger
    ;;
third)
    run outlives_a_power_cut
    code=$?
    [ -z "$filters" ] || finish $code
    going_down reboot forced
    ;;
reboot)
    going_down reboot forced
    ;;
forced)
    going_down forced panic
    ;;
panic)
    going_down panic up_again
    ;;
*)
    run going_down::up_again
    code=$?
    [ -z "$filters" ] || finish $code
    # A few of the kernel tests, which need each program that the script has to bring. On all of them the other VM is spent.
    provision effects stuck::a_recovery_that_cannot_undo kills::a_killed_service proxies::calls_behind_a_proxy \
        leases::with_a_stopped_injector_and_no_memory packets::what_others_have packets::a_device_in_a_named_namespace
    provisioned=$?
    run removing_the_package
    code=$?
    finish $((provisioned ? provisioned : code))
    ;;
esac
