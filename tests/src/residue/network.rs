//! The picture of one network namespace.
//!
//! Left out, because the kernel changes them by itself and in its own time: link-local addresses, the routes that it makes
//! of addresses, neighbours and classes of flows, which come with traffic.
//!
//! What cannot be read is an error, unless it is not there: a picture that lacks something before and after is no witness.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;
use serde_json::Value;

use crate::bpf::{TCX_EGRESS, TCX_INGRESS, tcx_programs};
use crate::error::{Error, Result};
use crate::netns::NetNs;
use crate::skip::kernel_version;

const BPF_TCX: [(&str, u32); 2] = [("ingress", TCX_INGRESS), ("egress", TCX_EGRESS)];

/// Sysctls that count rather than set, and folders of those that no fault could have a use for: timers of neighbours, and
/// what devices to come will have.
const LEFT_OUT: [&str; 4] = ["nf_conntrack_count", "neigh", "conf/default", "stable_secret"];

/// Queues whose classes are the flows that they have met.
const FLOWS: [&str; 3] = ["fq_codel", "fq_pie", "sfq"];

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
    let (programs, settings, tables) = namespace.run(|| (tcx(&indices), sysctls(), nft()));
    lines.extend(programs?.into_iter().map(|(hook, ids)| (format!("{name} tcx {hook}"), ids)));
    lines.extend(settings?.into_iter().map(|(path, value)| (format!("{name} sysctl {path}"), value)));
    lines.extend(tables?.into_iter().map(|(table, value)| (format!("{name} nft {table}"), value)));
    Ok(())
}

/// The programs on the hooks of these devices of the calling thread's namespace; of none, before the kernel had such hooks.
fn tcx(indices: &[u32]) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    if kernel_version() < (6, 6) {
        return Ok(found);
    }
    for index in indices {
        for (direction, attach_type) in BPF_TCX {
            match tcx_programs(*index, attach_type) {
                Ok(ids) => found.push((format!("#{index} {direction}"), format!("{ids:?}"))),
                // It went since it was listed.
                Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => {}
                Err(error) => return Err(Error::io("look at", format!("tcx of #{index}"))(error)),
            }
        }
    }
    Ok(found)
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

/// Filters and classes, of the queues that have a place for them.
fn filters(namespace: &NetNs, qdiscs: &[Value], lines: &mut BTreeMap<String, String>) -> Result<()> {
    for qdisc in qdiscs {
        let [kind, device, handle] =
            ["kind", "dev", "handle"].map(|field| qdisc[field].as_str().unwrap_or_default());
        let hooks = matches!(kind, "clsact" | "ingress");
        let places: &[&[&str]] = match handle {
            _ if hooks => &[&["ingress"], &["egress"]],
            // What the kernel gives a device by itself is no parent of anything.
            "0:" => continue,
            root => &[&["parent", root]],
        };
        for place in places {
            let filters = namespace.tc(&[&["-j", "filter", "show", "dev", device], *place].concat())?;
            let what = format!("{} filters {device} {}", namespace.name(), place.join(" "));
            lines.insert(what, filters.trim().to_owned());
        }
        if !hooks {
            classes(namespace, device, lines)?;
        }
    }
    Ok(())
}

/// Classes of a device's queues.
fn classes(namespace: &NetNs, device: &str, lines: &mut BTreeMap<String, String>) -> Result<()> {
    let text = namespace.tc(&["-d", "class", "show", "dev", device])?;
    // "class KIND HANDLE ...".
    for class in text.lines().filter(|class| !FLOWS.contains(&class.split(' ').nth(1).unwrap_or_default())) {
        let (what, how) = class.match_indices(' ').nth(2).map_or((class, ""), |(at, _)| class.split_at(at));
        lines.insert(format!("{} {what} on {device}", namespace.name()), how.trim().to_owned());
    }
    Ok(())
}

/// The settings below `/proc/sys/net` of the calling thread's namespace, but for those that can only be written.
fn sysctls() -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new("/proc/sys/net").to_owned()];
    // The kernel gives a setting in one read; no more calls than that, as there are some thousand.
    let mut buffer = [0; 4096];
    while let Some(folder) = folders.pop() {
        let failed = |error| Error::io("list", folder.display().to_string())(error);
        let Some(entries) = unless_gone(fs::read_dir(&folder)).map_err(failed)? else { continue };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if LEFT_OUT.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if let Some(length) = setting(&path, &mut buffer)? {
                let text = String::from_utf8_lossy(&buffer[..length]).trim().to_owned();
                found.push((path.display().to_string(), text));
            }
        }
    }
    Ok(found)
}

/// How long a setting is, which is in the buffer then; `None` of one that cannot be read by anybody, or went with its device.
fn setting(path: &Path, buffer: &mut [u8]) -> Result<Option<usize>> {
    let read = fs::File::open(path).and_then(|mut file| file.read(buffer));
    match unless_gone(read) {
        Err(error) => match unless_gone(fs::metadata(path)) {
            Ok(None) => Ok(None),
            Ok(Some(file)) if file.mode() & 0o444 == 0 => Ok(None),
            _ => Err(Error::io("read", path.display().to_string())(error)),
        },
        Ok(length) => Ok(length),
    }
}

/// `None` of what is not there any more.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// nft tables, chains, rules and sets of the calling thread's namespace, as the kernel lists them (nfnetlink): `nft` is
/// not in every image. That the kernel has none is said, too.
fn nft() -> Result<Vec<(String, String)>> {
    // NFT_MSG_GETTABLE, GETCHAIN, GETRULE, GETSET (linux/netfilter/nf_tables.h).
    let questions = [("tables", 1_u16), ("chains", 4), ("rules", 7), ("sets", 10)];
    let mut found = Vec::new();
    for (what, kind) in questions {
        match dump(kind) {
            Ok(text) => found.push((what.to_owned(), text)),
            Err(errno) if found.is_empty() && NO_NFT.contains(&errno) => {
                return Ok(vec![("in this kernel".to_owned(), format!("none ({errno})"))]);
            }
            Err(errno) => return Err(Error::sys("list nft", what)(errno)),
        }
    }
    Ok(found)
}

/// How a kernel says that it has no nft: without nfnetlink, and without nf_tables (`nfnetlink_rcv_msg`).
const NO_NFT: [Errno; 3] = [Errno::EPROTONOSUPPORT, Errno::EINVAL, Errno::EOPNOTSUPP];

/// The bodies of the answers to one list request.
fn dump(kind: u16) -> nix::Result<String> {
    const NFT: u16 = 10 << 8;
    const REQUEST_DUMP: u16 = 0x301;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    // The kernel answers when it is asked, not when it has time.
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(10, 0))?;
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
        if bodies(&buffer[..received], &mut found)? {
            return Ok(found);
        }
    }
}

/// Adds the bodies of the messages in what was received; says whether that was the last.
fn bodies(mut rest: &[u8], found: &mut String) -> nix::Result<bool> {
    // struct nlmsghdr, and struct nfgenmsg, which counts the transactions; or, of the last message, the error.
    const HEADER: usize = 20;
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    while !rest.is_empty() {
        let number = |at: usize| {
            rest.get(at..at + 4).map_or(0, |four| i32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
        };
        let length = number(0).unsigned_abs() as usize;
        if length < HEADER || length > rest.len() {
            return Err(Errno::EBADMSG);
        }
        if matches!(u16::from_ne_bytes([rest[4], rest[5]]), ERROR | DONE) {
            return match number(16) {
                0 => Ok(true),
                negative => Err(Errno::from_raw(-negative)),
            };
        }
        let body = &rest[HEADER..length];
        let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        let hash = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        found.push_str(&format!("{hash:016x} {}\n", body.iter().map(printable).collect::<String>()));
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of this type whose payload is one number.
    fn message(kind: u16, number: i32) -> Vec<u8> {
        let mut bytes = Vec::from(20_u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(number.to_ne_bytes());
        bytes
    }

    #[test]
    fn an_error_in_place_of_a_list_is_an_error_and_so_is_nonsense() {
        let read = |bytes: &[u8]| bodies(bytes, &mut String::new());
        assert_eq!(read(&message(3, 0)), Ok(true));
        assert_eq!(read(&message(0xa00, 0)), Ok(false));
        assert_eq!(read(&[message(0xa00, 0), message(3, 0)].concat()), Ok(true));
        assert_eq!(read(&message(2, -(Errno::EPERM as i32))), Err(Errno::EPERM));
        assert_eq!(read(&message(3, -(Errno::EINTR as i32))), Err(Errno::EINTR));
        assert_eq!(read(&message(3, 0)[..17]), Err(Errno::EBADMSG));
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_an_error_and_one_that_is_not_there_or_only_written_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("setting");
        let mut buffer = [0; 64];
        assert_eq!(setting(&file, &mut buffer).unwrap(), None);
        fs::write(&file, "1\n").unwrap();
        assert_eq!(setting(&file, &mut buffer).unwrap(), Some(2));
        // A folder can be opened, and not be read: it stands for whatever else the kernel might say.
        assert!(setting(folder.path(), &mut buffer).is_err());
    }
}
