//! What is on the links of some namespaces, as independent tools see it; compared exactly before and after.

use std::collections::BTreeMap;
use std::mem::{size_of, zeroed};
use std::process::Command;
use std::time::Duration;

use nix::libc;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::netns::{NetNs, output};
use crate::process::wait_until;
use crate::skip::Environment;

const BPF_PROG_QUERY: libc::c_long = 16;
const BPF_TCX: [(&str, u32); 2] = [("ingress", 46), ("egress", 47)];

/// A picture of links, qdiscs, filters and eBPF programs: one line each, by what it describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residue {
    lines: BTreeMap<String, String>,
}

impl Residue {
    /// Takes the picture. In the VM, where every eBPF link is ours, it includes all of the kernel's.
    ///
    /// # Errors
    /// When a tool cannot be run.
    pub fn take(namespaces: &[&NetNs]) -> Result<Self> {
        let mut lines = BTreeMap::new();
        for namespace in namespaces {
            picture(namespace, &mut lines)?;
        }
        if Environment::detect() == Environment::Vm {
            let links = output(Command::new("bpftool").args(["-j", "link"]))?;
            lines.insert("bpf links".to_owned(), links.trim().to_owned());
        }
        Ok(Self { lines })
    }

    /// Waits, at most so long, until the namespaces look as they did when this was taken.
    ///
    /// # Errors
    /// With all that differs.
    pub fn assert_unchanged_within(&self, namespaces: &[&NetNs], settle: Duration) -> Result<()> {
        let mut last = Ok(String::new());
        let same = wait_until(settle, || {
            // Listing tools race with objects that vanish under them: only the last answer counts.
            last = Self::take(namespaces).map(|now| self.difference(&now));
            matches!(&last, Ok(text) if text.is_empty())
        });
        match last {
            _ if same => Ok(()),
            Ok(difference) => Err(Error::Different(format!("residue after {settle:?}:\n{difference}"))),
            Err(error) => Err(error),
        }
    }

    /// What another picture has and this has not (+), and the other way round (-).
    pub fn difference(&self, other: &Self) -> String {
        let mut text = String::new();
        for (sign, ours, theirs) in [('-', self, other), ('+', other, self)] {
            for (key, value) in &ours.lines {
                if theirs.lines.get(key) != Some(value) {
                    text.push_str(&format!("{sign} {key}: {value}\n"));
                }
            }
        }
        text
    }
}

fn picture(namespace: &NetNs, lines: &mut BTreeMap<String, String>) -> Result<()> {
    let name = namespace.name();
    let links = json(&namespace.ip(&["-d", "-j", "link"])?)?;
    let links = links.as_array().map(Vec::as_slice).unwrap_or_default();
    let qdiscs = json(&namespace.tc(&["-j", "qdisc"])?)?;
    let qdiscs = qdiscs.as_array().map(Vec::as_slice).unwrap_or_default();
    for (position, qdisc) in qdiscs.iter().enumerate() {
        let device = qdisc["dev"].as_str().unwrap_or_default();
        lines.insert(format!("{name} qdisc {device} #{position}"), qdisc.to_string());
    }
    for link in links {
        let device = link["ifname"].as_str().unwrap_or_default();
        lines.insert(format!("{name} link {device}"), link.to_string());
        // Without one of these qdiscs there is nowhere for a filter to be.
        let has_hooks = |qdisc: &Value| {
            qdisc["dev"] == link["ifname"] && (qdisc["kind"] == "clsact" || qdisc["kind"] == "ingress")
        };
        if qdiscs.iter().any(has_hooks) {
            for direction in ["ingress", "egress"] {
                let filters = namespace.tc(&["-j", "filter", "show", "dev", device, direction])?;
                lines.insert(format!("{name} filters {device} {direction}"), filters.trim().to_owned());
            }
        }
    }
    let indices: Vec<u32> =
        links.iter().filter_map(|link| u32::try_from(link["ifindex"].as_u64()?).ok()).collect();
    // An error on kernels without tcx, before and after alike.
    let query = |index: &u32| BPF_TCX.map(|(_, attach_type)| tcx_programs(*index, attach_type).ok());
    let answers: Vec<_> = namespace.run(|| indices.iter().map(query).collect());
    for (index, programs) in indices.iter().zip(answers) {
        for ((direction, _), programs) in BPF_TCX.iter().zip(programs) {
            lines.insert(format!("{name} tcx #{index} {direction}"), format!("{programs:?}"));
        }
    }
    Ok(())
}

fn json(text: &str) -> Result<Value> {
    // An empty list is printed as nothing at all by some versions.
    let text = if text.trim().is_empty() { "[]" } else { text };
    serde_json::from_str(text).map_err(|error| Error::Different(format!("not JSON: {error}: {text}")))
}

/// `union bpf_attr`, its part for `BPF_PROG_QUERY` (`include/uapi/linux/bpf.h`).
#[repr(C)]
struct ProgramQuery {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    program_ids: u64,
    count: u32,
    padding: u32,
    program_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// Ids of the programs on a tcx hook of the current namespace, in their order.
///
/// # Errors
/// As the kernel says; on one without tcx, always.
pub fn tcx_programs(ifindex: u32, attach_type: u32) -> std::io::Result<Vec<u32>> {
    let mut ids = [0_u32; 64];
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut query: ProgramQuery = unsafe { zeroed() };
    query.target_ifindex = ifindex;
    query.attach_type = attach_type;
    query.program_ids = ids.as_mut_ptr() as u64;
    query.count = 64;
    // SAFETY: the kernel writes at most `count` ids to the array and the struct's own size to the struct; both
    // live until the call is over.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size_of::<ProgramQuery>()) };
    if result < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(ids[..query.count.min(64) as usize].to_vec())
}
