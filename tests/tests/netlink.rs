//! `kernel::netlink` and `host::netns` against the kernel the tests run on, each test in namespaces of its own
//! on a thread of its own: what a test leaves behind ends with its thread. Needs root.

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use chaos_daemon::host::netns::NetNs;
    use chaos_daemon::kernel::netlink::marks::{
        End, FILTER_HANDLE, FILTER_PREFIX, NETEM_HANDLE, far_name, filter_pref, near_name,
    };
    use chaos_daemon::kernel::netlink::probe::probe;
    use chaos_daemon::kernel::netlink::{
        Chance, Clsact, LinkLayer, Loss, Netem, Netlink, NetlinkError, Qdisc, Residue, VethPair,
    };
    use chaos_daemon::spec::{Direction, Distribution};
    use chaos_tests::HANG;
    use chaos_tests::kernel::Context;
    use chaos_tests::skip::{Reason, skip};
    use nix::errno::Errno;
    use nix::libc;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const PREF: u16 = 30_001;

    /// Runs a test on a thread that is in a fresh namespace. Its runtime is the kind that holders use.
    fn in_private_namespace<F: Future<Output = ()>>(test: impl FnOnce(NetNs) -> F + Send) {
        thread::scope(|scope| {
            let body = || {
                // Before entering: see `NetNs::unshare` for what the first runtime would do to the namespace.
                let runtime = runtime();
                let netns = NetNs::unshare().expect("these tests need root");
                runtime.block_on(test(netns));
            };
            if let Err(panic) = scope.spawn(body).join() {
                std::panic::resume_unwind(panic);
            }
        });
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// A namespace that nothing but the descriptor keeps.
    fn another_namespace() -> NetNs {
        thread::spawn(|| NetNs::unshare().unwrap()).join().unwrap()
    }

    /// A pair from the calling thread's namespace, as a holder's, to another, as a target's.
    async fn pair_to_another() -> (Netlink, Netlink, VethPair) {
        let far_side = Netlink::open().unwrap();
        let near_side = Netlink::open_in(another_namespace()).unwrap();
        let pair = far_side.create_veth_pair(&near_name(7), &near_side, &far_name(7)).await.unwrap();
        (near_side, far_side, pair)
    }

    /// A device to work on: one end of a pair within the namespace.
    async fn a_device(netlink: &Netlink) -> u32 {
        netlink.create_veth_pair("target", netlink, "peer").await.unwrap().near.ifindex
    }

    /// Loads `r0 = -1; exit` (TC_ACT_UNSPEC: no opinion) as a classifier (bpf(2)).
    fn tiny_program() -> OwnedFd {
        const BPF_PROG_LOAD: libc::c_long = 5;
        #[repr(C)]
        #[derive(Default)]
        struct Attr {
            prog_type: u32,
            insn_cnt: u32,
            insns: u64,
            license: u64,
            rest: [u64; 13],
        }
        let program: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
        let license = c"MIT";
        let attr = Attr {
            prog_type: 3, // BPF_PROG_TYPE_SCHED_CLS
            insn_cnt: 2,
            insns: program.as_ptr() as u64,
            license: license.as_ptr() as u64,
            ..Attr::default()
        };
        // SAFETY: the kernel only reads, within the size given; everything pointed to outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attr, size_of::<Attr>()) };
        assert!(fd >= 0, "loading a program: {}", Errno::last());
        // SAFETY: the descriptor is new, and nobody else's.
        unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) }
    }

    #[test]
    fn a_namespace_is_told_from_another_by_its_cookie_and_entered_without_moving_the_caller() {
        in_private_namespace(|here| async move {
            let there = another_namespace();
            let (own, other) = (here.identity().unwrap(), there.identity().unwrap());
            assert_ne!(own.cookie, other.cookie);
            assert_ne!(own.inode, other.inode);
            assert_eq!(NetNs::current().unwrap().identity().unwrap(), own, "the caller was moved");
            there.enter().unwrap();
            assert_eq!(NetNs::current().unwrap().identity().unwrap(), other);
            let fd = there.as_fd().try_clone_to_owned().unwrap();
            assert_eq!(NetNs::of_fd(fd).unwrap().identity().unwrap(), other);
        });
    }

    #[test]
    fn a_veth_pair_spans_two_namespaces_and_is_silent() {
        in_private_namespace(|_| async {
            let (near_side, far_side, pair) = pair_to_another().await;
            for (side, device, name) in
                [(&near_side, &pair.near, near_name(7)), (&far_side, &pair.far, far_name(7))]
            {
                assert_eq!((device.name.as_str(), device.mtu, device.up), (name.as_str(), 65_535, false));
                assert_eq!(device.layer, LinkLayer::Ethernet);
                // As on a router: only there a device would report multicast groups without an address.
                let routed = ["/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv4/ip_forward"];
                side.netns().inside(|| routed.iter().try_for_each(|path| std::fs::write(path, "1"))).unwrap();
                side.set_up(device.ifindex).await.unwrap();
            }
            for (side, device) in [(&near_side, &pair.near), (&far_side, &pair.far)] {
                assert!(side.wait_until_running(device.ifindex, HANG).await.unwrap());
            }
            tokio::time::sleep(MS(300)).await;
            for (side, device) in [(&near_side, &pair.near), (&far_side, &pair.far)] {
                let device = side.link_by_index(device.ifindex).await.unwrap().unwrap();
                assert_eq!((device.rx_packets, device.tx_packets), (0, 0), "{device:?}");
                assert_eq!(side.link(&device.name).await.unwrap(), Some(device.clone()));
                assert_eq!(device.speed_mbit, Some(10_000), "a veth says 10 Gbit/s");
            }
            for (side, device) in [(&near_side, &pair.near), (&far_side, &pair.far)] {
                let read = || std::fs::read_to_string("/proc/thread-self/net/if_inet6");
                let addresses = side.netns().inside(read).unwrap();
                assert!(!addresses.contains(&device.name), "it has an IPv6 address: {addresses}");
            }
            let lo = near_side.link("lo").await.unwrap().unwrap();
            assert_eq!((lo.layer, lo.speed_mbit), (LinkLayer::Loopback, None));
        });
    }

    #[test]
    fn a_device_is_deleted_only_by_number_and_name_and_a_second_time_is_no_error() {
        in_private_namespace(|_| async {
            let (near_side, far_side, pair) = pair_to_another().await;
            assert!(!near_side.delete_link(pair.near.ifindex, "eth0").await.unwrap());
            assert!(!near_side.delete_link(pair.near.ifindex + 100, &pair.near.name).await.unwrap());
            assert!(near_side.link(&pair.near.name).await.unwrap().is_some());
            assert!(near_side.delete_link(pair.near.ifindex, &pair.near.name).await.unwrap());
            assert!(!near_side.delete_link(pair.near.ifindex, &pair.near.name).await.unwrap());
            assert_eq!(far_side.link(&pair.far.name).await.unwrap(), None, "a pair ends with either end");
        });
    }

    #[test]
    fn a_taken_name_is_refused_and_leaves_nothing_of_the_new_pair() {
        in_private_namespace(|_| async {
            let (near_side, far_side, pair) = pair_to_another().await;
            let error = far_side.create_veth_pair(&pair.near.name, &near_side, "other").await.unwrap_err();
            assert_eq!(error.errno(), Some(Errno::EEXIST), "{error}");
            assert_eq!(error.to_string(), "cannot create the veth pair chaos00000007n - other");
            assert_eq!(far_side.link("other").await.unwrap(), None);
            assert!(far_side.link(&pair.far.name).await.unwrap().is_some());
        });
    }

    #[test]
    fn the_near_end_goes_when_the_last_process_leaves_the_private_namespace() {
        let target = another_namespace();
        let watcher = target.as_fd().try_clone_to_owned().unwrap();
        let watcher = NetNs::of_fd(watcher).unwrap();
        let mut timings = Vec::new();
        let mut made = Instant::now();
        in_private_namespace(|_| async {
            let start = Instant::now();
            let far_side = Netlink::open().unwrap();
            let near_side = Netlink::open_in(target).unwrap();
            timings.push(("two connections", start.elapsed()));
            let start = Instant::now();
            let pair = far_side.create_veth_pair(&near_name(7), &near_side, &far_name(7)).await.unwrap();
            timings.push(("create_veth_pair", start.elapsed()));
            let start = Instant::now();
            near_side.set_up(pair.near.ifindex).await.unwrap();
            far_side.set_up(pair.far.ifindex).await.unwrap();
            timings.push(("set_up of both", start.elapsed()));
            let start = Instant::now();
            assert!(near_side.wait_until_running(pair.near.ifindex, HANG).await.unwrap());
            assert!(far_side.wait_until_running(pair.far.ifindex, HANG).await.unwrap());
            timings.push(("until both run", start.elapsed()));
            made = Instant::now();
        });
        runtime().block_on(async {
            let netlink = Netlink::open_in(watcher).unwrap();
            while netlink.link(&near_name(7)).await.unwrap().is_some() {
                assert!(made.elapsed() < HANG, "the near end outlives its namespace");
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            timings.push(("near end gone after the namespace", made.elapsed()));
            assert!(netlink.residue().await.unwrap().is_empty());
        });
        println!("{timings:?}");
    }

    #[test]
    fn a_bpf_filter_is_listed_with_its_name_and_program_and_deleted_only_when_it_is_ours() {
        in_private_namespace(|_| async {
            let netlink = Netlink::open().unwrap();
            let (device, program) = (a_device(&netlink).await, tiny_program());
            let before = netlink.qdiscs(device).await.unwrap();
            assert_eq!(netlink.add_clsact(device).await.unwrap(), Clsact::Added);
            assert_eq!(netlink.add_clsact(device).await.unwrap(), Clsact::AlreadyThere);
            for direction in Direction::BOTH {
                let add = |pref, name| {
                    netlink.add_bpf_filter(device, *direction, pref, FILTER_HANDLE, program.as_fd(), name)
                };
                add(filter_pref(2).unwrap(), "foreign").await.unwrap();
                add(PREF, FILTER_PREFIX).await.unwrap();
                let taken = add(PREF, FILTER_PREFIX).await.unwrap_err();
                assert_eq!(taken.errno(), Some(Errno::EEXIST), "{taken}");

                let filters = netlink.list_filters(device, *direction).await.unwrap();
                let names: Vec<_> = filters.iter().map(|f| (f.pref, f.bpf_name.as_deref())).collect();
                assert_eq!(names, [(PREF, Some("chaos_stub")), (PREF + 1, Some("foreign"))]);
                assert!(filters.iter().all(|f| f.kind == "bpf" && f.handle == FILTER_HANDLE));
                assert!(filters[0].prog_id.is_some() && filters[0].prog_id == filters[1].prog_id);

                let delete =
                    |pref, name| netlink.delete_bpf_filter(device, *direction, pref, FILTER_HANDLE, name);
                assert!(!delete(PREF + 1, FILTER_PREFIX).await.unwrap(), "a foreign filter was deleted");
                assert!(!delete(PREF + 2, FILTER_PREFIX).await.unwrap());
                assert!(delete(PREF, FILTER_PREFIX).await.unwrap());
                assert!(!delete(PREF, FILTER_PREFIX).await.unwrap());
                assert!(!netlink.delete_clsact(device).await.unwrap(), "a foreign filter would be lost");
                assert_eq!(netlink.list_filters(device, *direction).await.unwrap().len(), 1);
            }
            for direction in Direction::BOTH {
                assert!(!netlink.delete_clsact(device).await.unwrap());
                assert!(
                    netlink
                        .delete_bpf_filter(device, *direction, PREF + 1, FILTER_HANDLE, "foreign")
                        .await
                        .unwrap()
                );
            }
            assert!(netlink.delete_clsact(device).await.unwrap());
            assert!(!netlink.delete_clsact(device).await.unwrap());
            assert_eq!(netlink.qdiscs(device).await.unwrap(), before, "the root is what it was");
        });
    }

    #[test]
    fn a_filter_is_found_at_its_own_place_only() {
        in_private_namespace(|_| async {
            let netlink = Netlink::open().unwrap();
            let (device, program) = (a_device(&netlink).await, tiny_program());
            let at = async |direction, pref, handle| {
                let found = netlink.bpf_filter(device, direction, pref, handle).await.unwrap();
                found.map(|filter| (filter.pref, filter.handle, filter.bpf_name, filter.prog_id.is_some()))
            };
            let (side, other) = (Direction::Egress, Direction::Ingress);
            assert_eq!(at(side, PREF, FILTER_HANDLE).await, None, "there is no hook");
            netlink.add_clsact(device).await.unwrap();
            assert_eq!(at(side, PREF, FILTER_HANDLE).await, None, "there is no filter");
            let pref = PREF + 1;
            let name = FILTER_PREFIX;
            netlink.add_bpf_filter(device, side, pref, FILTER_HANDLE, program.as_fd(), name).await.unwrap();
            let whole = (pref, FILTER_HANDLE, Some(FILTER_PREFIX.to_owned()), true);
            assert_eq!(at(side, pref, FILTER_HANDLE).await, Some(whole));
            for (place, elsewhere) in [
                ("hook", at(other, pref, FILTER_HANDLE).await),
                ("preference below", at(side, pref - 1, FILTER_HANDLE).await),
                ("preference above", at(side, pref + 1, FILTER_HANDLE).await),
                ("handle", at(side, pref, FILTER_HANDLE + 1).await),
            ] {
                assert_eq!(elsewhere, None, "it is found at another {place}");
            }
            assert!(netlink.delete_bpf_filter(device, side, pref, FILTER_HANDLE, name).await.unwrap());
            assert_eq!(at(side, pref, FILTER_HANDLE).await, None, "it is gone");
        });
    }

    #[test]
    fn a_clsact_is_deleted_while_others_ask_for_filters_of_it() {
        in_private_namespace(|_| async {
            let netlink = Netlink::open().unwrap();
            let device = a_device(&netlink).await;
            let done = AtomicBool::new(false);
            let ask = || {
                runtime().block_on(async {
                    let netlink = Netlink::open().unwrap();
                    while !done.load(Ordering::Relaxed) {
                        let found = netlink.bpf_filter(device, Direction::Egress, PREF, FILTER_HANDLE).await;
                        assert_eq!(found.unwrap(), None);
                    }
                });
            };
            // In the same namespace, as those who started them.
            thread::scope(|scope| {
                let askers = [scope.spawn(ask), scope.spawn(ask)];
                let deletes = scope.spawn(|| {
                    runtime().block_on(async {
                        let netlink = Netlink::open().unwrap();
                        let mut failures = Vec::new();
                        for _ in 0..300 {
                            netlink.add_clsact(device).await.unwrap();
                            match netlink.delete_clsact(device).await {
                                Ok(true) => {}
                                other => failures.push(format!("{other:?}")),
                            }
                        }
                        failures
                    })
                });
                let failures = deletes.join();
                done.store(true, Ordering::Relaxed);
                let asked: Vec<_> = askers.into_iter().map(|asker| asker.join().is_ok()).collect();
                assert_eq!(asked, [true, true]);
                assert_eq!(failures.unwrap(), Vec::<String>::new());
            });
        });
    }

    #[test]
    fn on_a_device_that_is_gone_there_is_nothing_and_adding_says_so() {
        in_private_namespace(|_| async {
            let netlink = Netlink::open().unwrap();
            let (gone, program) = (4711, tiny_program());
            assert_eq!(netlink.link_by_index(gone).await.unwrap(), None);
            assert_eq!(netlink.link("gone").await.unwrap(), None);
            assert!(netlink.qdiscs(gone).await.unwrap().is_empty());
            assert!(netlink.list_filters(gone, Direction::Egress).await.unwrap().is_empty());
            assert_eq!(netlink.bpf_filter(gone, Direction::Egress, PREF, 1).await.unwrap(), None);
            assert!(!netlink.delete_link(gone, "gone").await.unwrap());
            assert!(!netlink.delete_clsact(gone).await.unwrap());
            assert!(!netlink.delete_root(gone, NETEM_HANDLE).await.unwrap());
            assert!(!netlink.delete_bpf_filter(gone, Direction::Egress, PREF, 1, "x").await.unwrap());
            let added = [
                netlink.set_up(gone).await.unwrap_err(),
                netlink.add_clsact(gone).await.unwrap_err(),
                netlink
                    .add_bpf_filter(gone, Direction::Egress, PREF, 1, program.as_fd(), "x")
                    .await
                    .unwrap_err(),
            ];
            for error in added {
                assert_eq!(error.errno(), Some(Errno::ENODEV), "{error}");
                assert!(error.to_string().contains("interface 4711"), "{error}");
            }
        });
    }

    #[test]
    fn a_missing_module_is_named_and_none_that_is_there() {
        let missing = probe().unwrap().missing_modules();
        // As somebody else finds it.
        let has_netem = Context::new().has_netem();
        let expected: &[&str] = if has_netem { &[] } else { &["sch_netem"] };
        assert_eq!(missing, expected);
        in_private_namespace(|_| async move {
            let (netlink, _far_side, pair) = pair_to_another().await;
            let netem = Netem::delay(MS(100), MS(10), 5000);
            let result = netlink.add_root_netem(&pair.near, NETEM_HANDLE, &netem).await;
            if has_netem {
                return result.unwrap();
            }
            let error = result.unwrap_err();
            assert!(matches!(error, NetlinkError::MissingModule { module: "sch_netem", .. }), "{error:?}");
            assert!(error.to_string().contains("sch_netem"), "{error}");
            assert_eq!(netlink.read_netem(pair.near.ifindex).await.unwrap(), None);
        });
    }

    #[test]
    fn netem_is_read_back_as_asked() {
        if !Context::new().has_netem() {
            return skip(Reason::NoNetem, "there is nothing to be read back");
        }
        in_private_namespace(|_| async move {
            let (netlink, _far_side, pair) = pair_to_another().await;
            let device = pair.near.ifindex;
            let netem = Netem::delay(Duration::from_nanos(100_000_001), MS(10), 5000);
            netlink.add_root_netem(&pair.near, NETEM_HANDLE, &netem).await.unwrap();
            let state = netlink.read_netem(device).await.unwrap().unwrap();
            assert_eq!((state.netem, state.handle), (netem, NETEM_HANDLE));
            assert_eq!((state.backlog_packets, state.backlog_bytes, state.drops), (0, 0, 0));
            let twice = netlink.add_root_netem(&pair.near, NETEM_HANDLE, &netem).await.unwrap_err();
            assert_eq!(twice.errno(), Some(Errno::EEXIST), "{twice}");
            assert!(!netlink.delete_root(device, 0x1_0000).await.unwrap(), "another's root was deleted");
            assert!(netlink.delete_root(device, NETEM_HANDLE).await.unwrap());
            assert!(!netlink.delete_root(device, NETEM_HANDLE).await.unwrap());
            assert_eq!(netlink.read_netem(device).await.unwrap(), None);
            println!("netem read back: {state:?}");
            for netem in every_option() {
                netlink.add_root_netem(&pair.near, NETEM_HANDLE, &netem).await.unwrap();
                let state = netlink.read_netem(device).await.unwrap().unwrap();
                assert_eq!(state.netem, netem.as_read_back());
                assert!(netlink.delete_root(device, NETEM_HANDLE).await.unwrap());
            }
        });
    }

    fn every_option() -> [Netem; 6] {
        let chance = Chance { share: 1 << 30, correlation: 1 << 29 };
        let delay = Netem::delay(MS(100), MS(10), 5000);
        [
            Netem { delay_correlation: 1 << 30, distribution: Distribution::ParetoNormal, ..delay },
            Netem { loss: Loss::Random(chance), duplicate: chance, corrupt: chance, ..delay },
            Netem { loss: Loss::GilbertElliott { p: 1, r: 2, h: 3, k1: 4 }, ..delay },
            Netem { loss: Loss::FourState { p13: 1, p31: 2, p32: 3, p14: 4, p23: 5 }, ..delay },
            Netem { reorder: chance, gap: 5, rate: 125_000, ..delay },
            Netem { rate: 5_000_000_000, ..delay },
        ]
    }

    #[test]
    fn a_netem_on_a_foreign_device_or_one_that_the_kernel_would_change_in_silence_is_not_sent() {
        in_private_namespace(|_| async {
            let (netlink, _far_side, pair) = pair_to_another().await;
            let netem = Netem::delay(MS(5000), MS(3000), 10);
            let error = netlink.add_root_netem(&pair.near, NETEM_HANDLE, &netem).await.unwrap_err();
            assert!(matches!(error, NetlinkError::OutOfRange { .. }), "{error:?}");
            assert!(error.to_string().contains("a jitter of 3s"), "{error}");
            let lo = netlink.link("lo").await.unwrap().unwrap();
            let netem = Netem::delay(MS(5), MS(0), 10);
            let error = netlink.add_root_netem(&lo, NETEM_HANDLE, &netem).await.unwrap_err();
            assert!(matches!(error, NetlinkError::NotOurs { .. }), "{error:?}");
            assert_eq!(error.to_string(), "cannot put netem on lo: it is not a device of ours");
        });
    }

    #[test]
    fn residue_is_found_by_its_marks_and_removed_and_nothing_foreign_with_it() {
        in_private_namespace(|_| async {
            let netlink = Netlink::open().unwrap();
            let (device, program) = (a_device(&netlink).await, tiny_program());
            netlink.create_veth_pair("chaosx", &netlink, "chaos-lan").await.unwrap();
            netlink.add_clsact(device).await.unwrap();
            for (pref, name) in [(PREF, "chaos_stub"), (PREF + 1, "foreign"), (29_999, "chaos_stub")] {
                netlink
                    .add_bpf_filter(device, Direction::Egress, pref, 1, program.as_fd(), name)
                    .await
                    .unwrap();
            }
            let pair =
                netlink.create_veth_pair(&near_name(0xbeef), &netlink, &far_name(0xbeef)).await.unwrap();
            let mut found = netlink.residue().await.unwrap();
            found.sort_by_key(ToString::to_string);
            let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(
                texts,
                [
                    "device chaos0000beeff of fault 0000beef",
                    "device chaos0000beefn of fault 0000beef",
                    "filter chaos_stub pref 30001 on target egress",
                ]
            );
            let near = Residue::Device {
                ifindex: pair.near.ifindex,
                name: pair.near.name,
                fault: 0xbeef,
                end: End::Near,
            };
            assert!(found.contains(&near));
            let removed = [
                netlink.remove(&found[0]).await.unwrap(),
                netlink.remove(&found[1]).await.unwrap(),
                netlink.remove(&found[2]).await.unwrap(),
            ];
            assert_eq!(removed, [true, false, true], "the second end went with the first");
            assert!(netlink.residue().await.unwrap().is_empty());
            assert_eq!(netlink.list_filters(device, Direction::Egress).await.unwrap().len(), 2);
            assert!(netlink.link("chaosx").await.unwrap().is_some());
        });
    }

    #[test]
    fn the_probe_leaves_the_callers_namespace_as_it_was() {
        in_private_namespace(|here| async move {
            let netlink = Netlink::open().unwrap();
            let before = (netlink.links().await.unwrap(), netlink.all_qdiscs().await.unwrap());
            let start = Instant::now();
            let support = probe().unwrap();
            println!("probed in {:?}, missing: {:?}", start.elapsed(), support.missing_modules());
            assert_eq!(before, (netlink.links().await.unwrap(), netlink.all_qdiscs().await.unwrap()));
            assert_eq!(NetNs::current().unwrap().identity().unwrap(), here.identity().unwrap());
            for answer in [support.veth, support.filters] {
                answer.expect("every kernel these tests run on has it");
            }
        });
    }

    #[test]
    fn the_root_of_a_device_is_seen() {
        in_private_namespace(|_| async {
            let netlink = Netlink::open().unwrap();
            let device = a_device(&netlink).await;
            netlink.set_up(device).await.unwrap();
            let roots = netlink.qdiscs(device).await.unwrap();
            let [root] = roots.as_slice() else { panic!("{roots:?}") };
            assert_eq!((root.kind.as_str(), root.handle, root.parent), ("noqueue", 0, Qdisc::ROOT));
        });
    }
}
