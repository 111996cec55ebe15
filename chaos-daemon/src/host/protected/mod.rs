//! What is never a target: pure decisions on a process, a unit, and a selection of processes. Rules come first, since nobody can list
//! all that a host lives by; then the table of [`names`].

pub mod names;
mod open;
pub mod places;
mod spared;
pub mod ways_in;

use std::fmt;

use super::part::Part;
use super::process::{Owner, Running};
pub use names::Category;
pub use open::{Open, line, list, opens, opens_interval};
pub use spared::{Asker, Spared, own_program};

/// Why whoever asks is never a target, nor those above it.
pub const CALLER: &str = "it is the caller, or an ancestor of it";
const NEEDED: &str = "this host or its operator needs it";

/// The rule by which something is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// PID 1.
    First,
    /// A thread of the kernel.
    Kernel,
    /// A part of ours.
    Ourselves,
    /// The caller, or who is above it.
    Session,
    /// Systemd, the message bus, sshd; and what gives the host its addresses.
    Core,
    /// Somebody else is logged in by it, or has it at a terminal.
    Login,
    /// The host does not come up without its unit.
    NeededToBoot,
    /// It listens where operators come in.
    Listens,
    /// By what it is to the host.
    Table(Category),
    /// A shell that is not the caller's, outside of a unit that was named.
    Shell,
    /// It is in no unit, and not the caller's.
    NoUnit,
}

/// That something is no target, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    /// By which rule.
    pub rule: Rule,
    /// Why, for people.
    pub why: &'static str,
    /// The line of the policy that would open it; `None` when nothing does.
    pub opens_with: Option<String>,
}

impl Protected {
    fn never(rule: Rule, why: &'static str) -> Self {
        Self { rule, why, opens_with: None }
    }

    fn unit(rule: Rule, why: &'static str, unit: &str) -> Self {
        Self { rule, why, opens_with: Some(line("units", &list(unit))) }
    }

    /// By its name where that can be written into the policy, else by its path, else by its unit.
    fn program(rule: Rule, why: &'static str, process: &Running) -> Self {
        let name = Some(&process.name).filter(|name| open::is_name(name));
        let by_program = name.or(process.exe.as_ref()).map(|name| line("programs", &list(name)));
        let opens_with = by_program.or_else(|| Some(line("units", &list(process.unit()?))));
        Self { rule, why, opens_with }
    }

    /// What would open it, for the hint of a refusal.
    pub fn remedy(&self) -> String {
        match &self.opens_with {
            Some(line) => {
                format!("{line} of the daemon's policy file opens it; only the operator changes it")
            }
            None => "nothing opens it: name the processes of one service".to_owned(),
        }
    }
}

impl fmt::Display for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

/// How a process is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// With all that its unit, control group or container has, which was named.
    AtPlace,
    /// By what it is itself.
    AtProcess,
}

impl Running {
    /// Why it is no target of a request for which these are `spared`; `None` when it may be one.
    pub fn protected(&self, aim: Aim, spared: &Spared) -> Option<Protected> {
        self.never(spared).or_else(|| match spared.only_looks || spared.open.has(self) {
            true => None,
            false => self.closed(aim, spared),
        })
    }

    /// What nothing opens.
    fn never(&self, spared: &Spared) -> Option<Protected> {
        let never = |rule, why| Some(Protected::never(rule, why));
        if self.id.pid == 1 {
            return never(Rule::First, "it is PID 1");
        }
        if self.of_kernel {
            return never(Rule::Kernel, "it is a thread of the kernel");
        }
        // By its name, too: an upgrade has replaced the file that an older one runs.
        let is_part = self.nearness.of_this_host && self.may_be_a_part();
        if is_part || spared.program.is_some() && self.program == spared.program {
            return never(Rule::Ourselves, "it is a part of chaos-daemon");
        }
        let is_core =
            self.nearness.of_this_host && self.is_really(names::is_core) && !self.is_called_after_systemd();
        if is_core || self.nearness.in_this_network && self.is_really(names::keeps_network) {
            return never(Rule::Core, NEEDED);
        }
        if spared.session.contains(&self.id) {
            return never(Rule::Session, CALLER);
        }
        // A container may have terminals of its own, which have the numbers of others.
        let has_own_terminals =
            self.container().is_some() || !self.nearness.of_this_host && self.owner.login.is_none();
        let owner = match has_own_terminals {
            true => Owner { terminal: 0, ..self.owner },
            false => self.owner,
        };
        if !spared.only_looks && owner.is_logged_in_elsewhere(spared.asker) {
            return never(Rule::Login, "somebody else is logged in by it, or has it at a terminal");
        }
        None
    }

    /// What the policy opens.
    fn closed(&self, aim: Aim, spared: &Spared) -> Option<Protected> {
        let unit = self.unit();
        if let Some(unit) = unit.filter(|unit| spared.needed.contains(*unit)) {
            return Some(Protected::unit(
                Rule::NeededToBoot,
                "this host does not come up without its unit",
                unit,
            ));
        }
        let program = |rule, why| Some(Protected::program(rule, why, self));
        if self.listens {
            return program(Rule::Listens, "it listens where operators come in");
        }
        // Programs of containers are in pid namespaces of their own. Those of who runs this host are in its network, too.
        let is_near = self.nearness.of_this_host || self.nearness.in_this_network;
        if let Some(category) = self.find_name(names::program).filter(|_| is_near) {
            return program(Rule::Table(category), category.why());
        }
        let runs = self.program_name().and_then(|program| names::run_by(program, &self.command));
        if let Some(category) = runs.filter(|_| is_near) {
            let rule = Rule::Table(category);
            // Others are run by the same program.
            return match unit.filter(|unit| unit.ends_with(".service")) {
                Some(unit) => Some(Protected::unit(rule, category.why(), unit)),
                None => program(rule, category.why()),
            };
        }
        // Whatever it is called itself. The scope of a container is called after what runs it.
        let service = unit.filter(|unit| self.nearness.of_this_host && unit.ends_with(".service"));
        if let Some(unit) = service
            && let Some(category) = names::unit(unit)
        {
            return Some(Protected::unit(Rule::Table(category), category.why(), unit));
        }
        let asker = spared.asker;
        let is_own = asker.uid == Some(self.owner.uid);
        let is_placed = aim == Aim::AtPlace && self.has_place();
        if !is_own && !is_placed && !self.is_proxy() && self.is_called(names::is_shell) {
            return program(Rule::Shell, "it may be how somebody is in");
        }
        if !is_own && !asker.is_root() && !self.has_place() {
            return program(Rule::NoUnit, "it is in no unit, and not the caller's");
        }
        None
    }

    /// Whether it is in a unit of the host or in a container. What a user's login has is in none.
    fn has_place(&self) -> bool {
        let is_of_login = |unit: &str| names::is_login(unit) || unit.starts_with("user@");
        let in_unit = self.owner.login.is_none() && self.unit().is_some_and(|unit| !is_of_login(unit));
        in_unit || self.container().is_some()
    }

    /// Whether it is our client before a server, by which nobody is in.
    fn is_proxy(&self) -> bool {
        self.command.split(' ').nth(1) == Some("mcp-proxy")
    }

    /// The name of the file that it runs; `None` when it has none or hides it.
    fn program_name(&self) -> Option<&str> {
        self.exe.as_deref().and_then(|exe| exe.rsplit('/').next())
    }

    /// Whether it is one of ours by its name, and may be one by its program: anybody can take a name.
    fn may_be_a_part(&self) -> bool {
        let runs_ours = self.program_name().is_none_or(|program| program == Part::Injector.name());
        Part::named(&self.name).is_some() && (runs_ours || self.owner.uid == 0)
    }

    /// Whether it is a program of which this holds: by the file that it runs, which is root's. By its name alone it is only where that
    /// file is hidden, or says nothing: where root runs a script, or what is many programs in one.
    fn is_really(&self, is: impl Fn(&str) -> bool) -> bool {
        let Some(program) = self.program_name() else { return self.is_called(is) };
        let by_name = || self.owner.uid == 0 && names::is_many(program) && self.is_called(&is);
        self.program_is_roots && (is(program) || by_name())
    }

    /// Whether its program is called as those of systemd are, and lies where none of those does.
    fn is_called_after_systemd(&self) -> bool {
        let Some((folder, program)) = self.exe.as_deref().and_then(|exe| exe.rsplit_once('/')) else {
            return false;
        };
        let is_systemds =
            folder.contains("/systemd") || ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].contains(&folder);
        program.starts_with("systemd-") && !is_systemds
    }

    fn find_name<T>(&self, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        let program = self.program_name().unwrap_or_default();
        // As it calls itself, up to what it says about itself: "nginx: worker".
        let name = self.name.split(':').next().unwrap_or_default();
        find(&self.name).or_else(|| find(name)).or_else(|| find(program))
    }

    fn is_called(&self, is: impl Fn(&str) -> bool) -> bool {
        self.find_name(|name| is(name).then_some(())).is_some()
    }
}

impl Owner {
    /// Whether somebody other than who asks is logged in by a process of this owner, or has it at a terminal.
    fn is_logged_in_elsewhere(self, asker: Asker) -> bool {
        let same_user = asker.uid == Some(self.uid);
        let own_login = self.login.is_some() && (self.login == asker.uid || self.login == asker.login);
        let own_terminal = self.terminal == asker.terminal;
        let other_login = self.login.is_some() && !own_login;
        // All that a user has is his, and root is not one user: it may be several people.
        let is_his = same_user && !asker.is_root();
        other_login || self.terminal != 0 && !own_terminal && !is_his && !own_login
    }
}

/// Why a unit is no target; `None` when it may be one, as far as its name says.
pub fn unit(name: &str, spared: &Spared) -> Option<Protected> {
    if names::is_core_unit(name) {
        return Some(Protected::never(Rule::Core, NEEDED));
    }
    if spared.only_looks || spared.open.units.contains(name) {
        return None;
    }
    if spared.needed.contains(name) {
        return Some(Protected::unit(Rule::NeededToBoot, "this host does not come up without it", name));
    }
    names::unit(name).map(|category| Protected::unit(Rule::Table(category), category.why(), name))
}

#[cfg(test)]
mod tests;
