//! What hosts are kept running by, as a table: names of programs, and of units that run them. Rules come before it
//! ([`super`]); it is for what no rule tells, such as who secures a host or keeps its data.

use super::super::sshd::is_sshd;

/// The kernel cuts the name of a process to so many bytes (`TASK_COMM_LEN`).
const LONGEST_NAME: usize = 15;

/// What a program or unit is to its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// An operator comes in by it, or is in by it.
    WayIn,
    /// It boots the host, or keeps what it boots from.
    Boot,
    /// It secures the host.
    Security,
    /// It writes down what happens.
    Logging,
    /// It installs and updates programs.
    Updates,
    /// It runs containers, virtual machines or a cluster.
    Containers,
    /// It keeps disks, and file systems of others.
    Storage,
    /// It knows names, users and the time.
    Names,
    /// It keeps data of others.
    Database,
}

impl Category {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::WayIn,
        Self::Boot,
        Self::Security,
        Self::Logging,
        Self::Updates,
        Self::Containers,
        Self::Storage,
        Self::Names,
        Self::Database,
    ];

    /// Why nobody hits it unasked.
    pub fn why(self) -> &'static str {
        match self {
            Self::WayIn => "an operator comes in by it",
            Self::Boot => "this host boots or is supervised by it",
            Self::Security => "it secures this host",
            Self::Logging => "it writes this host's logs",
            Self::Updates => "it installs or updates programs, and would leave them half done",
            Self::Containers => "it runs the containers, virtual machines or cluster of this host",
            Self::Storage => "it keeps disks or file systems",
            Self::Names => "this host gets names, users or the time from it",
            Self::Database => "it keeps data of others",
        }
    }

    /// Programs, by name, with blanks between them: a `*` at the end stands for any end. A unit is called after its program.
    fn programs(self) -> &'static str {
        match self {
            Self::WayIn => WAYS_IN,
            Self::Boot => BOOT,
            Self::Security => SECURITY,
            Self::Logging => LOGGING,
            Self::Updates => UPDATES,
            Self::Containers => CONTAINERS,
            Self::Storage => STORAGE,
            Self::Names => NAMES,
            Self::Database => DATABASES,
        }
    }

    /// Units that are called otherwise than their programs, without `.service`; likewise.
    fn units(self) -> &'static str {
        match self {
            Self::WayIn => {
                "autovt@* display-manager qemu-guest-agent open-vm-tools walinuxagent \
                 google-guest-agent* google-osconfig-agent google-oslogin-* google-startup-scripts \
                 google-shutdown-scripts google-compute-engine* amazon-ssm* snap.amazon-ssm* strongswan* ipsec openvpn* wg-quick@* wireguard* \
                 telnet* guacd sshguard"
            }
            Self::Boot => {
                "rescue emergency initrd-* kmod kmod-static-nodes cloud-init* cloud-config cloud-final rc-local \
                 keyboard-setup"
            }
            Self::Security => {
                "nftables* iptables* ip6tables* ebtables* netfilter-persistent ferm shorewall* \
                 selinux* polkit fail2ban clamav-* clamd@* ossec* krb5-* cryptsetup*"
            }
            Self::Logging => "rsyslog syslog td-agent* logrotate",
            Self::Updates => {
                "apt-daily* unattended-upgrades dnf-automatic* dnf-makecache dnf-system-upgrade* yum-* \
                 packagekit update-notifier-*"
            }
            Self::Containers => "docker* podman* crio* lxc* libvirt* pacemaker* k3s* rke2-*",
            Self::Storage => {
                "open-iscsi iscsi* multipath* lvm2* mdadm* dm-event zfs* nfs* rpc-* autofs smb \
                 nmb glusterfs*"
            }
            Self::Names => "winbind chrony ntp ntpsec openntpd bind9 hostapd",
            Self::Database => "postgresql* mysql* mariadb* redis* valkey* mongodb clickhouse*",
        }
    }
}

const WAYS_IN: &str = "agetty getty mingetty mgetty fgetty ngetty qingy login sulogin sudo su doas pkexec run0 tmux* \
    screen SCREEN zellij abduco dtach gdm* lightdm* sddm* xdm lxdm* greetd* Xorg Xwayland \
    gnome-shell kwin_* sway dropbear* tinysshd* lshd telnetd in.telnetd utelnetd rlogind in.rlogind \
    rshd xrdp* Xvnc Xtigervnc x11vnc vnc* gnome-remote-* ttyd shellinaboxd gotty mosh-server \
    etserver cockpit-* teleport anydesk teamviewerd tailscaled openvpn charon* pluto wireguard-go \
    boringtun* nebula zerotier-one netbird cloudflared autossh frpc stunnel* ocserv* tincd qemu-ga \
    amazon-ssm-agent ssm-agent-worker ssm-session-worker ssm-document-worker google_guest_* \
    google_osconfig* google-guest-* GCEGuestAgent* WindowsAzureGuestAgent waagent WALinuxAgent \
    vmtoolsd VBoxService hv_kvp_daemon hv_vss_daemon spice-vdagentd xe-daemon oracle-cloud-* \
    salt-minion puppet puppet-agent puppetd pxp-agent chef-client nrpe";

const BOOT: &str = "runit runit-init runsv runsvdir s6-* openrc* supervise-daemon start-stop-daemon finit dinit procd shepherd \
    supervisord udevd eudevd mdev elogind* seatd plymouthd kexec modprobe insmod acpid upsd upsmon \
    apcupsd watchdog wd_keepalive cloud-init ignition grub-* efibootmgr dracut* mkinitramfs \
    update-initramfs";

const SECURITY: &str = "auditd audispd audisp-* auoms* falco falco-* falcoctl* osqueryd wazuh-* ossec-* fail2ban-* crowdsec* polkitd \
    sshguard* firewalld ufw* apparmor* aa-status aa-enforce aa-complain aa-teardown clamd freshclam suricata* snort* zeek tetragon \
    usbguard-* setroubleshootd aide tripwire falcon-sensor* mdatp* wdavdaemon ds_agent sentineld \
    s1-agent cbagentd elastic-agent elastic-endpoint auditbeat krb5kdc kadmind cryptsetup* vault \
    tpm2-abrmd pcscd haveged rngd nft iptables*";

const LOGGING: &str = "rsyslogd syslog-ng syslogd klogd metalog socklog* svlogd s6-log fluent-bit fluentd td-agent \
    vector promtail filebeat journalbeat logrotate rasdaemon kdump* kdumpctl";

const UPDATES: &str = "dpkg* apt apt-get apt-cache apt-config apt-helper apt.systemd.* aptitude rpm rpmdb* rpm-ostree* dnf* yum zypper pacman apk emerge portage \
    nix-daemon unattended-* packagekitd snapd fwupd* ostree transactional-* needrestart";

const CONTAINERS: &str = "containerd* dockerd docker-* runc* crun youki conmon* podman crio buildkitd kata-* lxc-* lxcfs \
    lxd incusd libvirtd virtlogd virtlockd virtqemud virtstoraged qemu-system-* qemu-kvm firecracker \
    cloud-hypervisor kubelet kube-* kubeadm k3s* k0s rke2 microk8s* etcd corosync pacemaker* crmd \
    stonithd fenced keepalived pcsd sbd consul nomad cilium-* calico-* felix flanneld kube-router \
    ovs-vswitchd ovsdb-server bird bgpd ospfd zebra frr*";

const STORAGE: &str = "mdadm mdmon multipathd iscsid iscsiuio iscsiadm lvm lvmpolld dmeventd lvmetad zed zpool zfs \
    fsck fsck.* e2fsck xfs_* btrfs* resize2fs mkfs* rpcbind portmap rpc.* blkmapd nfsdcld gssproxy \
    automount mount mount.* umount umount.* smbd nmbd ceph-* radosgw gluster* drbd* tgtd nbd-* vdo* lizardfs* \
    moosefs* beegfs* mmfsd stratisd udisksd smartd parted";

const NAMES: &str = "nscd unscd nslcd sssd* winbindd samba slapd ns-slapd realmd oddjobd dnsmasq unbound named \
    knot-resolver kresd pdns* stubby dnscrypt-proxy coredns resolvconf chronyd ntpd openntpd ptp4l \
    phc2sys hostapd radvd odhcpd odhcp6c kea-*";

const DATABASES: &str = "postgres postmaster pgbouncer mysqld* mariadbd* mongod mongos redis-server redis-sentinel \
    valkey-server valkey-sentinel keydb-server dragonfly clickhouse* influxd cockroach scylla \
    sqlservr oracle ora_* tnslsnr db2sysc rethinkdb arangod couchdb firebird neo4j questdb surreal \
    tidb-server tikv-server pd-server memcached epmd";

/// Shells, and our own client: whoever has one is in by it.
const SHELLS: &str =
    "sh bash rbash dash ash zsh ksh ksh93 mksh oksh fish tcsh csh nu pwsh elvish xonsh chaosctl";

/// Programs without which nothing of a host goes on, beside our own: systemd, the message bus, sshd.
const CORE: &str = "systemd init dbus-daemon dbus-broker systemd-* (sd-* (udev-worker) dbus-broker-*";

/// Programs that are many by the name that they are started by, and what runs scripts.
const MANY: &str = "busybox toybox udevadm systemd-executor sh bash dash python* perl";

/// What is run by another program: that program, what it is to its host, and the words of its command line by which it is known. Of a
/// JVM that is the class that is begun with, and of Erlang what a node is called.
const RUN_BY_OTHERS: [(&str, Category, &str); 2] = [
    (
        "java",
        Category::Database,
        "org.apache.cassandra.* org.elasticsearch.* org.opensearch.* kafka.Kafka kafka.server.* \
         org.apache.zookeeper.server.* org.apache.hadoop.hdfs.server.* org.apache.hadoop.hbase.* \
         org.apache.solr.* org.neo4j.* com.neo4j.* org.apache.ignite.* org.apache.activemq.* \
         org.apache.pulsar.* org.apache.bookkeeper.* org.apache.druid.* io.trino.* org.hsqldb.* org.h2.tools.*",
    ),
    (
        "beam.smp",
        Category::Database,
        "rabbit rabbit@* couchdb couchdb@* couch_ini riak riak@* riak_core emqx emqx@*",
    ),
];

/// What gives this host its addresses and keeps its links up, by the beginnings of the names of programs, and of units that run
/// one of them. Of programs only those in the host's network: in another, a container's or a test's, they are anybody's.
const NETWORK: &str = "NetworkManager* connman* dhclient* dhcp6c* dhcpcd* iwd* netifd* pppd* udhcpc* wickedd* \
    wpa_supplicant*";

/// Names of other units that nothing opens, ourselves among them; with all of [`NETWORK`].
const CORE_UNITS: &str = "systemd-* dbus.service dbus.socket dbus-broker.service dbus-org.freedesktop.* ssh.service \
    ssh.socket ssh@* sshd.service sshd.socket sshd@* sshd-* networking.service network.service netctl.service netctl@* ifup@* \
    wicked.service getty@* serial-getty@* container-getty@* console-getty.service user@* user-runtime-dir@* init.scope \
    chaos-daemon*";

/// Whether a name is what a pattern says: itself, or its beginning where the pattern ends with `*`; or as much of it as the
/// kernel keeps.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin) || name.len() == LONGEST_NAME && begin.starts_with(name),
        None => name == pattern || name.len() == LONGEST_NAME && pattern.starts_with(name),
    }
}

/// Whether one of the patterns, which have blanks between them, fits.
fn any(patterns: &str, name: &str) -> bool {
    patterns.split_whitespace().any(|pattern| fits(pattern, name))
}

/// Whether nothing of a host goes on without a program of this name.
pub fn is_core(name: &str) -> bool {
    is_sshd(name) || any(CORE, name)
}

/// Whether a program of this name is what it is started as.
pub fn is_many(program: &str) -> bool {
    any(MANY, program)
}

/// What a program of this name is to its host by the command line with which it was started.
pub fn run_by(program: &str, command: &str) -> Option<Category> {
    let fits = |(runs, _, words): &&(&str, Category, &str)| {
        // A path, an option, or one of several is something that it uses, and not what it is.
        let is_plain = |word: &&str| !word.contains([':', '=', ',']) && !word.starts_with(['-', '/', '.']);
        *runs == program && command.split(' ').skip(1).filter(is_plain).any(|word| any(words, word))
    };
    RUN_BY_OTHERS.iter().find(fits).map(|(_, category, _)| *category)
}

/// Whether a program of this name gives a host its addresses, or keeps its links up.
pub fn keeps_network(name: &str) -> bool {
    any(NETWORK, name)
}

/// Whether it is a shell, or our own client.
pub fn is_shell(name: &str) -> bool {
    // A login shell has a dash before its name (login(1)).
    any(SHELLS, name.strip_prefix('-').unwrap_or(name))
}

/// What a program of this name is to its host.
pub fn program(name: &str) -> Option<Category> {
    Category::ALL.into_iter().find(|category| any(category.programs(), name))
}

/// Whether nothing opens a unit of this name.
pub fn is_core_unit(name: &str) -> bool {
    any(CORE_UNITS, name) || any(NETWORK, name) || is_login(name)
}

/// Whether a unit of this name is somebody's session (logind).
pub fn is_login(name: &str) -> bool {
    name.starts_with("session-") && name.ends_with(".scope")
}

/// What a unit of this name is to its host.
pub fn unit(name: &str) -> Option<Category> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    // What comes after an @ is whom it serves.
    let of = stem.split_once('@').map_or(stem, |(template, _)| template);
    let has = |category: &Category| any(category.units(), stem) || any(category.programs(), of);
    Category::ALL.into_iter().find(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_name_or_its_beginning_and_meets_what_the_kernel_has_cut() {
        assert!(fits("auditd", "auditd") && !fits("auditd", "auditdx") && !fits("su", "sum"));
        assert!(fits("containerd*", "containerd-shim") && !fits("containerd*", "container"));
        assert!(fits("amazon-ssm-agent", "amazon-ssm-agen") && !fits("amazon-ssm-agent", "amazon-ssm"));
        assert!(fits("google_osconfig*", "google_osconfig") && fits("knot-resolver-gc*", "knot-resolver-g"));
    }

    #[test]
    fn each_name_of_the_table_is_there_once_and_no_pattern_is_so_short_that_it_means_everybody() {
        let all: Vec<_> =
            Category::ALL.iter().flat_map(|category| category.programs().split_whitespace()).collect();
        for (index, name) in all.iter().enumerate() {
            assert!(!all[..index].contains(name), "{name} twice");
            assert!(name.len() >= 2 && !name.starts_with('*'), "{name}");
        }
    }

    #[test]
    fn what_a_jvm_or_a_node_of_erlang_runs_is_known_by_the_words_it_was_started_with() {
        let cassandra = "/usr/bin/java -ea -Xms1G -cp /etc/cassandra:/usr/share/a.jar org.apache.cassandra.service.CassandraDaemon";
        let rabbit = "/usr/lib/erlang/bin/beam.smp -W w -- -root /usr/lib/erlang -- -noinput -s rabbit boot -sname rabbit@a";
        for (program, command) in [
            ("java", cassandra),
            ("java", "java kafka.Kafka /etc/kafka.conf"),
            ("java", "java -Xms1g -m org.elasticsearch.server/org.elasticsearch.bootstrap.Elasticsearch"),
            ("beam.smp", rabbit),
        ] {
            assert_eq!(run_by(program, command), Some(Category::Database), "{command}");
        }
        for (program, command) in [
            ("java", "java -cp /app/org.apache.kafka.jar:/b com.shop.Main --topic org.apache.kafka"),
            ("java", "java -Dmain=org.apache.cassandra.service.CassandraDaemon com.shop.Main"),
            ("java", "java -jar shop.jar"),
            ("beam.smp", "beam.smp -- -s shop start -sname shop@a"),
            ("python3", cassandra),
        ] {
            assert_eq!(run_by(program, command), None, "{command}");
        }
    }

    #[test]
    fn what_only_begins_like_a_part_of_the_host_is_nothing_to_it() {
        for name in
            ["falcon", "mountebank", "puppeteer", "umount-helper", "runit-tests", "fsckit", "aa-server"]
        {
            assert_eq!(program(name), None, "{name}");
        }
        for name in [
            "update-catalog.service",
            "cloud-storage-api.service",
            "google-ads-sync.service",
            "falcon-web.service",
            "emergency-calls.service",
            "apt-cacher.service",
        ] {
            assert_eq!(unit(name), None, "{name}");
        }
        for name in [
            "cloud-init-local.service",
            "cloud-final.service",
            "google-guest-agent.service",
            "falco-modern-bpf.service",
        ] {
            assert!(unit(name).is_some(), "{name}");
        }
    }

    #[test]
    fn services_of_everybody_are_nothing_to_their_host() {
        for name in [
            "nginx",
            "apache2",
            "node",
            "java",
            "python3",
            "sleep",
            "cat",
            "worker",
            "chaos-worker",
            "gunicorn",
            "php-fpm",
            "envoy",
            "haproxy",
            "shop",
            "systemdx",
            "summary",
            "logins",
        ] {
            assert_eq!(program(name), None, "{name}");
            assert!(!is_core(name) && !keeps_network(name) && !is_shell(name), "{name}");
        }
        for unit_name in
            ["nginx.service", "shop@1.service", "network-api.service", "wickedly-good.service", "mdx.service"]
        {
            assert!(unit(unit_name).is_none() && !is_core_unit(unit_name), "{unit_name}");
        }
    }
}
