//! `chaosctl policy`: writes, checks and explains the file by which the daemon decides. It asks no daemon.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::claude_md::{EXPORT_EXIT_CODES, ExportArgs};
use super::failure::{FAILED, Failure, NOT_PERMITTED};
use super::fault_args::{OfFault, with_files};
use crate::policy::environment::Environment;
use crate::policy::limits::Recent;
use crate::policy::{Asked, Intent, Policy, PolicyError, Refusal, Role, Way, Who};
use crate::request::{Act, Caller, chain};
use crate::spec::{Probability, SpecError};

/// Where an installed daemon has it.
pub(super) const POLICY: &str = "/etc/chaos-daemon/policy.toml";
/// The file that is installed: every field, none of them set.
const COMMENTED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../systemd/policy.toml"));
/// The line of it that says what the host is.
const ENVIRONMENT: &str = "#environment = \"staging\"";

pub(super) const TEST_EXIT_CODES: &str = "Exit codes:
  0  permitted
  1  the policy file cannot be used
  2  the command line makes no sense
  4  refused";

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Write a policy file in which every field is explained, for a host that is no production
    Init {
        /// What this host is, such as "test" or "staging"
        #[arg(long, value_name = "NAME", value_parser = |text: &str| Environment::try_from(text.to_owned()))]
        environment: Environment,
        /// Replace a file that is there
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        file: PolicyFile,
    },
    /// Check a policy file, as the daemon does when it starts
    Check {
        #[command(flatten)]
        file: PolicyFile,
    },
    /// Tell what follows from a policy file: what this host is, and who may do what now
    Explain {
        #[command(flatten)]
        file: PolicyFile,
        #[command(flatten)]
        who: As,
    },
    /// Tell an agent what to keep to here, from the policy that the daemon has read
    #[command(after_help = EXPORT_EXIT_CODES)]
    Export(ExportArgs),
    /// Tell whether a policy file permits a fault, and if not, by which rule and which line would
    #[command(after_help = TEST_EXIT_CODES)]
    Test {
        #[command(flatten)]
        file: PolicyFile,
        #[command(flatten)]
        how: How,
        #[command(subcommand)]
        fault: Box<OfFault<Nothing>>,
    },
}

#[derive(Debug, Args)]
pub(super) struct PolicyFile {
    /// The policy file
    #[arg(long, value_name = "FILE", default_value = POLICY)]
    file: PathBuf,
}

/// As whom.
#[derive(Debug, Args)]
pub(super) struct As {
    /// As this user, by number
    #[arg(long, value_name = "UID", default_value_t = nix::unistd::getuid().as_raw())]
    uid: u32,
    /// With this group, by number; several times for several
    #[arg(long = "gid", value_name = "GID")]
    gids: Vec<u32>,
}

/// As whom, when and how.
#[derive(Debug, Args)]
pub(super) struct How {
    #[command(flatten)]
    who: As,
    /// At this time, such as 2026-12-24T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// In a run of an experiment, and not by itself
    #[arg(long)]
    in_run: bool,
}

/// Nothing beside a fault.
#[derive(Debug, Args)]
pub(super) struct Nothing {}

impl As {
    fn who(&self) -> Who {
        let (gid, groups) =
            self.gids.split_first().map_or((u32::MAX, &[][..]), |(first, more)| (*first, more));
        Who { groups: groups.to_vec(), ..Caller::Unix { uid: self.uid, gid, pid: 0 }.into() }
    }
}

impl PolicyFile {
    fn read(&self) -> Result<Policy, Failure> {
        Policy::read(&self.file).map_err(|error: PolicyError| Failure::Other(chain(&error)))
    }
}

/// Does it. Returns text for people, the answer for programs, and the exit code.
///
/// # Errors
/// When the file cannot be read or written, or is no policy.
pub(super) fn carry_out(command: &PolicyCommand) -> Result<(String, Value, u8), Failure> {
    match command {
        PolicyCommand::Init { environment, force, file } => init(environment, *force, file),
        PolicyCommand::Check { file } => check(file),
        PolicyCommand::Explain { file, who } => {
            let policy = file.read()?;
            let told = explained(&policy, &who.who(), Timestamp::now());
            Ok((told.text(), told.json(), 0))
        }
        PolicyCommand::Export(_) => Err(Failure::Other("the daemon is asked for it".to_owned())),
        PolicyCommand::Test { file, how, fault } => test(&file.read()?, how, fault),
    }
}

fn init(environment: &Environment, force: bool, file: &PolicyFile) -> Result<(String, Value, u8), Failure> {
    let path = &file.file;
    let failed = |operation: &str, error: std::io::Error| {
        Failure::Other(format!("{operation} {}: {error}", path.display()))
    };
    let untouched = fs::read_to_string(path).is_ok_and(|text| text == COMMENTED);
    if !force && !untouched && path.exists() {
        let problem =
            format!("{} is there: give --force to replace it, or --file for another", path.display());
        return Err(SpecError::new("--file", problem).into());
    }
    let line = format!("environment = {}", toml::Value::from(environment.name()));
    let text = COMMENTED.replacen(ENVIRONMENT, &line, 1);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| failed("make the folder of", error))?;
    }
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path);
    written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| failed("write", error))?;
    let next = match environment.is_production() {
        true => "Nothing will be injected, planned or probed on this host",
        false => "Faults may be injected on this host",
    };
    let text = format!(
        "wrote {}. {next} once the daemon has read it: systemctl reload chaos-daemon\n",
        path.display()
    );
    Ok((text, json!({"file": path, "environment": environment.name()}), 0))
}

fn check(file: &PolicyFile) -> Result<(String, Value, u8), Failure> {
    let path = file.file.display();
    match Policy::load(&file.file) {
        Ok(policy) => {
            let here = policy.environment.as_ref().map(Environment::name);
            let answer =
                json!({"valid": true, "file": file.file, "environment": here, "digest": policy.digest});
            Ok((format!("{path}: a valid policy; {}\n", here_words(&policy)), answer, 0))
        }
        Err(error) => {
            let problem = chain(&error);
            let answer = json!({"valid": false, "file": file.file, "error": problem});
            Ok((format!("{problem}\n"), answer, FAILED))
        }
    }
}

fn here_words(policy: &Policy) -> String {
    match &policy.environment {
        None => "it does not say what this host is, so there are dry runs alone".to_owned(),
        Some(here) if here.is_production() => format!("this host is {}, where nothing is done", here.name()),
        Some(here) => format!("this host is {}", here.name()),
    }
}

/// What follows from a policy.
struct Explained {
    here: String,
    digest: String,
    roles: Vec<Role>,
    /// Each act, and why it is refused, if it is.
    acts: Vec<(Act, Option<Refusal>)>,
    limits: Vec<String>,
}

fn explained(policy: &Policy, who: &Who, now: Timestamp) -> Explained {
    let judged = |act| match act {
        Act::Inject => policy.admit(who, act).and_then(|()| policy.admit_single(now)),
        Act::Run | Act::Schedule => policy.admit(who, act).and_then(|()| policy.windows.admit(now)),
        _ => policy.admit(who, act),
    };
    let acts = Act::ALL.map(|act| (act, judged(act).err()));
    let roles = policy.roles.of(who);
    let limits = [
        format!("at most {} faults at once", policy.max_active),
        format!("at most {} s for each", policy.max_duration_seconds),
    ];
    let approval = policy.approval.words().into_iter().map(|words| format!("approved of by {words}"));
    let limits = limits.into_iter().chain(policy.limits.words(&roles)).chain(approval).collect();
    Explained {
        here: here_words(policy),
        digest: policy.digest.clone(),
        roles: roles.into_iter().collect(),
        acts: acts.into(),
        limits,
    }
}

impl Explained {
    fn text(&self) -> String {
        let roles: Vec<_> = self.roles.iter().map(|role| role.name()).collect();
        let mut text = format!("{}\nrole: {}\n", self.here, roles.join(", "));
        for (act, refused) in &self.acts {
            let _ = match refused {
                None => writeln!(text, "  may      {act}"),
                Some(refusal) => writeln!(text, "  may not  {act}: {}", refusal.message)
                    .map(|()| text.push_str(&way(refusal))),
            };
        }
        let _ = writeln!(text, "{}\npolicy {}", self.limits.join(", "), self.digest);
        text
    }

    fn json(&self) -> Value {
        let acts = self.acts.iter().map(|(act, refused)| {
            let (error, lines) =
                (refused.as_ref().map(|refusal| &refusal.message), refused.as_ref().and_then(lines));
            json!({"act": act, "permitted": refused.is_none(), "error": error, "lines": lines})
        });
        json!({
            "environment": self.here, "roles": self.roles, "acts": acts.collect::<Vec<_>>(),
            "limits": self.limits, "digest": self.digest,
        })
    }
}

/// The lines of the policy file that would allow what is refused.
fn lines(refusal: &Refusal) -> Option<&str> {
    match &refusal.way {
        Way::Lines { full, .. } => Some(full),
        Way::Otherwise(_) | Way::Nothing => None,
    }
}

/// What would allow it, each line by itself.
fn way(refusal: &Refusal) -> String {
    let rule = &refusal.rule;
    match &refusal.way {
        Way::Lines { full, .. } => {
            let all = full.lines().map(|line| format!("               {line}\n"));
            format!(
                "             rule `{rule}`; above the first table of the file, in place of what is there:\n{}",
                all.collect::<String>()
            )
        }
        Way::Otherwise(otherwise) => format!("             rule `{rule}`; {otherwise}\n"),
        Way::Nothing => format!("             rule `{rule}`; nothing in the file allows it\n"),
    }
}

fn test(policy: &Policy, how: &How, fault: &OfFault<Nothing>) -> Result<(String, Value, u8), Failure> {
    let request = with_files(fault.fault.clone())?.request(Probability::CERTAIN)?;
    let parsed = request.parse()?;
    let (who, now) = (&how.who.who(), how.at.unwrap_or_else(Timestamp::now));
    let intent = if how.in_run { Intent::Run } else { Intent::Single };
    let asked = Asked { who, fault: &parsed, active: 0, recent: Recent::default(), intent, now };
    let decided = policy.spare_production_in(&request).and_then(|()| policy.judge(&asked));
    let name = parsed.fault_type.name();
    Ok(match decided {
        Ok(()) => (
            format!(
                "permitted: {name}, as far as the policy goes; `chaosctl inject {name} --dry-run` looks at the target\n"
            ),
            json!({"permitted": true}),
            0,
        ),
        Err(refusal) => {
            let text = format!("refused: {}\n{}", refusal.message, way(&refusal));
            let answer = json!({"permitted": false, "error": refusal.message, "rule": refusal.rule, "lines": lines(&refusal)});
            (text, answer, NOT_PERMITTED)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_is_written_is_the_installed_one_but_for_what_the_host_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = PolicyFile { file: folder.path().join("etc/policy.toml") };
        let staging = Environment::try_from("staging \"a\"".to_owned()).unwrap();
        let (said, ..) = init(&staging, false, &file).ok().unwrap();
        assert!(said.contains("may be injected"), "{said}");
        let policy = file.read().ok().unwrap();
        assert_eq!(policy.environment, Some(staging.clone()));
        // It is not written over, and with --force it is.
        assert!(matches!(init(&staging, false, &file), Err(Failure::Usage(_))));
        let production = Environment::try_from("production".to_owned()).unwrap();
        let (said, ..) = init(&production, true, &file).ok().unwrap();
        assert!(said.contains("Nothing will be injected"), "{said}");
        // The one that was installed, and nobody has changed, makes room.
        fs::write(&file.file, COMMENTED).unwrap();
        assert!(init(&staging, false, &file).is_ok());
    }

    #[test]
    fn what_follows_is_told_for_each_act_with_the_line_that_would_change_it() {
        let policy: Policy = toml::from_str(
            "environment = \"test\"\nroles.operator.uids = [1000]\nwindows.never = [\"12-24\"]\nlimits.everybody.runs_per_hour = 6",
        )
        .unwrap();
        let who = As { uid: 1001, gids: Vec::new() }.who();
        let told = explained(&policy, &who, "2026-12-24T12:00:00Z".parse().unwrap());
        let text = told.text();
        for words in [
            "this host is test",
            "role: observer",
            "may      look",
            "roles.operator.uids = [1000, 1001]",
            "runs_per_hour 6",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(told.json()["acts"].as_array().unwrap().len(), Act::ALL.len());
    }
}
