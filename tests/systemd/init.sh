#!/bin/busybox sh
# PID 1 of the initramfs of the VM with systemd: mounts the disk, puts there what this run brings, and hands over.
export PATH=/bin:/sbin
mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for module in virtio_pci virtio_blk crc32c_generic ext4; do
    modprobe -q $module
done
tries=0
until [ -b /dev/vda ] || [ $tries -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
mount -t ext4 /dev/vda /root || exec echo "init: no root file system"
if [ ! -d /root/chaos ]; then
    mkdir -p /root/lib/modules
    cp -a /lib/modules/. /root/lib/modules/
    cp -a /chaos /root/chaos
    cp /chaos/chaos-test.service /root/etc/systemd/system/
    mkdir -p /root/etc/systemd/system/multi-user.target.wants
    ln -s ../chaos-test.service /root/etc/systemd/system/multi-user.target.wants/
    # Nobody logs in.
    ln -sf /dev/null /root/etc/systemd/system/serial-getty@ttyS0.service
fi
umount /proc /sys
exec switch_root /root /sbin/init
