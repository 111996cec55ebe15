//! What is on the links of some namespaces, as independent tools see it; compared exactly before and after.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::bpf::{TCX_EGRESS, TCX_INGRESS, tcx_programs};
use crate::error::{Error, Result};
use crate::netns::{NetNs, output};
use crate::process::wait_until;
use crate::skip::Environment;

const BPF_TCX: [(&str, u32); 2] = [("ingress", TCX_INGRESS), ("egress", TCX_EGRESS)];

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
