//! The picture of one network namespace.
//!
//! Left out, because the kernel changes them by itself and in its own time: link-local addresses, the routes that it makes
//! of addresses, and neighbours, which come with traffic.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;
use serde_json::Value;

use crate::bpf::{TCX_EGRESS, TCX_INGRESS, tcx_programs};
use crate::error::{Error, Result};
use crate::netns::NetNs;

const BPF_TCX: [(&str, u32); 2] = [("ingress", TCX_INGRESS), ("egress", TCX_EGRESS)];

/// Sysctls that count rather than set, and folders of those that no fault could have a use for: timers of neighbours, and
/// what devices to come will have.
const LEFT_OUT: [&str; 4] = ["nf_conntrack_count", "neigh", "conf/default", "stable_secret"];

/// Takes it.
pub(super) fn picture(namespace: &NetNs, lines: &mut BTreeMap<String, String>) -> Result<()> {
    let name = namespace.name();
    let ip = batch(namespace, "ip", "address show\nroute show table all\nrule show\n")?;
    let [links, routes, rules] = &ip[..] else {
        return Err(Error::Different(format!("ip gave {} answers to 3 questions", ip.len())));
    };
    let qdiscs = batch(namespace, "tc", "qdisc show\n")?.pop().unwrap_or_default();
    for (position, qdisc) in qdiscs.iter().enumerate() {
        let device = qdisc["dev"].as_str().unwrap_or_default();
        lines.insert(format!("{name} qdisc {device} #{position}"), qdisc.to_string());
    }
    for link in links {
        let mut link = link.clone();
        let device = link["ifname"].as_str().unwrap_or_default().to_owned();
        let addresses = link["addr_info"].take();
        for address in
            addresses.as_array().into_iter().flatten().filter(|address| !is_by_itself(&address["local"]))
        {
            lines.insert(format!("{name} address {device} {}", address["local"]), address.to_string());
        }
        lines.insert(format!("{name} link {device}"), link.to_string());
    }
    for route in routes.iter().filter(|route| route["protocol"] != "kernel") {
        lines.insert(format!("{name} route {route}"), String::new());
    }
    for rule in rules {
        lines.insert(format!("{name} rule {rule}"), String::new());
    }
    filters(namespace, &qdiscs, lines)?;
    let indices: Vec<u32> =
        links.iter().filter_map(|link| u32::try_from(link["ifindex"].as_u64()?).ok()).collect();
    // An error on kernels without tcx, before and after alike.
    let query = |index: &u32| BPF_TCX.map(|(_, attach_type)| tcx_programs(*index, attach_type).ok());
    let (answers, settings, tables) =
        namespace.run(|| (indices.iter().map(query).collect::<Vec<_>>(), sysctls(), nft()));
    for (index, programs) in indices.iter().zip(answers) {
        for ((direction, _), programs) in BPF_TCX.iter().zip(programs) {
            lines.insert(format!("{name} tcx #{index} {direction}"), format!("{programs:?}"));
        }
    }
    lines.extend(settings.into_iter().map(|(path, value)| (format!("{name} sysctl {path}"), value)));
    lines.extend(tables.into_iter().map(|(table, value)| (format!("{name} nft {table}"), value)));
    Ok(())
}

/// Several questions to one program, as starting one is what takes time: one list each.
fn batch(namespace: &NetNs, program: &str, questions: &str) -> Result<Vec<Vec<Value>>> {
    let mut file = tempfile::tempfile().map_err(Error::io("create", "questions"))?;
    file.write_all(questions.as_bytes())
        .and_then(|()| std::io::Seek::rewind(&mut file))
        .map_err(Error::io("write", "questions"))?;
    let text =
        crate::netns::output(namespace.command(program).args(["-d", "-j", "-batch", "-"]).stdin(file))?;
    let mut answers = Vec::new();
    for answer in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let answer =
            answer.map_err(|error| Error::Different(format!("{program}: not JSON: {error}: {text}")))?;
        answers.push(answer.as_array().cloned().unwrap_or_default());
    }
    // An empty list is printed as nothing at all by some versions; then the questions are told apart no more.
    let asked = questions.lines().count();
    if answers.len() < asked {
        answers.clear();
        for question in questions.lines() {
            let words: Vec<&str> = ["-d", "-j"].into_iter().chain(question.split(' ')).collect();
            let text = crate::netns::output(namespace.command(program).args(&words))?;
            let text = if text.trim().is_empty() { "[]" } else { &text };
            let answer: Value = serde_json::from_str(text)
                .map_err(|error| Error::Different(format!("{program}: not JSON: {error}: {text}")))?;
            answers.push(answer.as_array().cloned().unwrap_or_default());
        }
    }
    Ok(answers)
}

/// What the kernel gives by itself to every device that is up.
fn is_by_itself(address: &Value) -> bool {
    address.as_str().is_some_and(|text| text.starts_with("fe80:"))
}

/// Filters, of the devices that have a place for them.
fn filters(namespace: &NetNs, qdiscs: &[Value], lines: &mut BTreeMap<String, String>) -> Result<()> {
    for qdisc in qdiscs.iter().filter(|qdisc| qdisc["kind"] == "clsact" || qdisc["kind"] == "ingress") {
        let device = qdisc["dev"].as_str().unwrap_or_default();
        for direction in ["ingress", "egress"] {
            let filters = namespace.tc(&["-j", "filter", "show", "dev", device, direction])?;
            lines.insert(
                format!("{} filters {device} {direction}", namespace.name()),
                filters.trim().to_owned(),
            );
        }
    }
    Ok(())
}

/// The settings below `/proc/sys/net` of the calling thread's namespace. One that cannot be read is left out, before and
/// after alike.
fn sysctls() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new("/proc/sys/net").to_owned()];
    // The kernel gives a setting in one read; no more calls than that, as there are some thousand.
    let mut buffer = [0; 4096];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if LEFT_OUT.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if let Ok(length) = fs::File::open(&path).and_then(|mut file| file.read(&mut buffer)) {
                let text = String::from_utf8_lossy(&buffer[..length]).trim().to_owned();
                found.push((path.display().to_string(), text));
            }
        }
    }
    found
}

/// nft tables, chains, rules and sets of the calling thread's namespace, as the kernel lists them (nfnetlink): `nft` is
/// not in every image. None where the kernel has none.
fn nft() -> Vec<(String, String)> {
    // NFT_MSG_GETTABLE, GETCHAIN, GETRULE, GETSET (linux/netfilter/nf_tables.h).
    let questions = [("tables", 1_u16), ("chains", 4), ("rules", 7), ("sets", 10)];
    questions.iter().filter_map(|(what, kind)| Some(((*what).to_owned(), dump(*kind).ok()?))).collect()
}

/// The bodies of the answers to one list request.
fn dump(kind: u16) -> nix::Result<String> {
    const NFT: u16 = 10 << 8;
    const REQUEST_DUMP: u16 = 0x301;
    // struct nlmsghdr, and struct nfgenmsg, which counts the transactions.
    const HEADER: usize = 20;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(1, 0))?;
    // struct nlmsghdr, then struct nfgenmsg.
    let mut request = Vec::from(20_u32.to_ne_bytes());
    request.extend((NFT | kind).to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 12]);
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut found = String::new();
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        let received = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..received];
        while rest.len() >= HEADER {
            let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let answer = u16::from_ne_bytes([rest[4], rest[5]]);
            // NLMSG_DONE and NLMSG_ERROR end it.
            if matches!(answer, 2 | 3) || length < HEADER || length > rest.len() {
                return Ok(found);
            }
            let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
            let body = &rest[HEADER..length];
            let hash = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
            found.push_str(&format!("{hash:016x} {}\n", body.iter().map(printable).collect::<String>()));
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
    }
}
