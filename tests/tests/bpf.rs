//! x
use chaos_daemon::kernel::bpf::*;
use std::time::Instant;
fn rss() -> String { std::fs::read_to_string("/proc/self/status").unwrap().lines().filter(|l| l.starts_with("VmRSS")||l.starts_with("VmHWM")).collect() }
#[test]
fn load() {
    println!("{}", rss());
    for i in 0..4 {
    let t = Instant::now();
    let r = Programs::load(Capacity { hosts: 1024, prefixes: 1024 });
    println!("{i} {:?} {}", t.elapsed(), rss());
    let mut e: Option<&dyn std::error::Error> = match &r { Ok(_) => None, Err(e) => Some(e) };
    while let Some(x) = e { println!("{x}"); e = x.source(); }
    assert!(r.is_ok());
    }
    println!("{:?}", kernel_has_tcx());
}
