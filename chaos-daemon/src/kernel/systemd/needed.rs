//! Units without which a host does not come up: what `sysinit.target` and `basic.target` need, and what those need
//! (systemd.special(7)).

use std::collections::BTreeSet;

use zbus::wire::OwnedObjectPath;

use super::{MANAGER, PATH, Systemd, SystemdError, UNIT, failed};

/// Where a host that comes up has to get to.
const GOALS: [&str; 2] = ["sysinit.target", "basic.target"];
/// By what one unit needs another.
const RELATIONS: [&str; 4] = ["Requires", "Requisite", "BindsTo", "Wants"];
/// How many units are asked about, at most.
const MOST: usize = 500;

impl Systemd {
    /// The services that have to run before this host has come up, by what systemd knows now.
    ///
    /// # Errors
    /// When systemd does not answer.
    pub async fn needed_to_boot(&self) -> Result<BTreeSet<String>, SystemdError> {
        walk(async |name| self.needs(name).await).await
    }

    async fn needs(&self, name: &str) -> Result<Vec<String>, SystemdError> {
        let operation = "look at unit";
        let wrong = |error| failed(operation, name, error);
        let answer = self.ask(PATH, MANAGER, "LoadUnit", &(name,), operation, name).await?;
        let path: OwnedObjectPath = answer.body().deserialize().map_err(wrong)?;
        let mut all = self.properties(&path, UNIT, name).await?;
        let mut needed = Vec::new();
        for relation in RELATIONS {
            if let Some(value) = all.remove(relation) {
                needed.extend(Vec::<String>::try_from(value).map_err(wrong)?);
            }
        }
        Ok(needed)
    }
}

/// The services on the ways to the goals, where `needs` tells what one unit needs.
async fn walk(
    needs: impl AsyncFn(&str) -> Result<Vec<String>, SystemdError>,
) -> Result<BTreeSet<String>, SystemdError> {
    let mut seen: BTreeSet<String> = GOALS.map(str::to_owned).into();
    let mut next: Vec<String> = seen.iter().cloned().collect();
    while let Some(name) = next.pop() {
        // Sockets, timers and paths start their services later; devices and mounts have no processes.
        let leads_on = |other: &String| other.ends_with(".service") || other.ends_with(".target");
        for other in needs(&name).await?.into_iter().filter(leads_on) {
            if seen.len() < MOST && seen.insert(other.clone()) {
                next.push(other);
            }
        }
    }
    seen.retain(|name| name.ends_with(".service"));
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_targets_of_the_boot_need_is_found_through_others_and_what_others_need_is_not() {
        let found = walk(async |name| {
            let needed: &[&str] = match name {
                "basic.target" => &["sysinit.target", "sockets.target", "shield.service"],
                "sysinit.target" => &["local-fs.target", "disks.service"],
                "sockets.target" => &["web.socket"],
                "local-fs.target" => &["data.mount", "crypt.service"],
                "crypt.service" => &["keys.service", "sysinit.target"],
                "web.socket" => &["web.service"],
                "multi-user.target" => &["shop.service"],
                _ => &[],
            };
            Ok(needed.iter().map(|name| (*name).to_owned()).collect())
        });
        let expected = ["crypt.service", "disks.service", "keys.service", "shield.service"];
        assert_eq!(found.await.unwrap(), expected.map(str::to_owned).into());
    }
}
