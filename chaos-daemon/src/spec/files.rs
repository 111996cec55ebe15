//! Faults of files: what the programs of one service ask of the files at or below one place fails, with an error of the
//! caller's choice.

use std::path::PathBuf;

use chaos_common::file;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::calls::{self, Failure};
use super::errno::FILE_ERRORS;
use super::parts::{CallShare, CallSignal};
use super::process::Whose;
use super::target::TargetRequest;
use super::units::SpecError;

/// Something that programs ask of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Opening one, also to run it.
    Open,
    /// Making one.
    Create,
    /// Reading from one that is open, or the names in an open folder.
    Read,
    /// Writing to one that is open.
    Write,
    /// Mapping one that is open into memory.
    Mmap,
}

/// Every operation.
pub const OPERATIONS: &[Operation] =
    &[Operation::Open, Operation::Create, Operation::Read, Operation::Write, Operation::Mmap];

/// What cannot fail, and why.
const IMPOSSIBLE: &[(&str, &str)] = &[
    ("fsync", FULL_INSTEAD),
    ("fdatasync", FULL_INSTEAD),
    ("msync", "cannot be made to fail: no security hook of the kernel is asked about it; fail mmap"),
    ("close", "cannot be made to fail: no security hook of the kernel is asked about it; fail write"),
];

const FULL_INSTEAD: &str = "cannot be made to fail: no security hook of the kernel is asked about it; fail write, or fill the file \
                            system with resource_exhaustion";

impl Operation {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Read => "read",
            Self::Write => "write",
            Self::Mmap => "mmap",
        }
    }

    /// The bit by which the programs know it.
    pub const fn bit(self) -> u32 {
        match self {
            Self::Open => file::OPEN,
            Self::Create => file::CREATE,
            Self::Read => file::READ,
            Self::Write => file::WRITE,
            Self::Mmap => file::MAP,
        }
    }
}

/// What one service asks of the files at or below a place: parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCalls {
    /// Whose calls.
    pub whose: Whose,
    /// A file, or a folder with everything below it in its file system.
    pub path: PathBuf,
    /// Which calls; never empty, and each once.
    pub operations: Vec<Operation>,
}

/// What `file_error` takes in `params`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct FileParams {
    /// A file, or a directory with all below it.
    path: String,
    /// Which calls fail; all unless some are given. No kernel can fail fsync.
    #[serde(default)]
    #[schemars(extend("items" = {"type": "string", "enum": OPERATIONS}))]
    operations: Vec<String>,
    /// What a call fails with; io_error unless it is given.
    #[schemars(extend("enum" = calls::words(FILE_ERRORS)))]
    errno: Option<String>,
}

impl FileParams {
    pub(super) fn failure(&self, share: CallShare, signal: &CallSignal) -> Result<Failure, SpecError> {
        Failure::parse(FILE_ERRORS, self.errno.as_deref(), share)?.with_signal(signal)
    }

    pub(super) fn calls(&self, target: &TargetRequest) -> Result<FileCalls, SpecError> {
        let path = PathBuf::from(&self.path);
        if !path.is_absolute() {
            return Err(SpecError::new(
                "params.path",
                "give an absolute path: the daemon has its own directory",
            ));
        }
        let operations = calls::operations(&self.operations, OPERATIONS, Operation::name, IMPOSSIBLE)?;
        let problem = "files are of no network: name a cgroup, a unit or processes, and nothing else";
        Ok(FileCalls { whose: Whose::alone(target, TargetRequest::default(), problem)?, path, operations })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::FaultType;
    use crate::spec::effect::Effect;
    use crate::spec::fault;

    fn parse(params: serde_json::Value) -> Result<(FileCalls, Failure), SpecError> {
        match fault::tests::parse(FaultType::FileError, r#"{"unit":"a.service"}"#, params)?.effect {
            Effect::Files { calls, failure } => Ok((calls, failure)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_operation_on_a_place_fails_with_an_io_error_unless_something_else_is_said() {
        let (calls, failure) = parse(json!({"path": "/var/lib/a"})).unwrap();
        assert_eq!(calls.operations, OPERATIONS);
        assert_eq!((failure.errno.symbol(), failure.times), ("EIO", None));
        let params =
            json!({"path": "/a", "operations": ["write", "open", "write"], "errno": "ENOSPC", "times": 3});
        let (calls, failure) = parse(params).unwrap();
        assert_eq!(calls.operations, [Operation::Write, Operation::Open]);
        assert_eq!((failure.errno.symbol(), failure.times), ("ENOSPC", Some(3)));
    }

    #[test]
    fn a_signal_comes_once_unless_something_else_is_said_and_stops_nobody() {
        let failure = |params| parse(params).unwrap().1;
        let plain = failure(json!({"path": "/a"}));
        assert_eq!((plain.signal, plain.times), (None, None));
        let hard = failure(json!({"path": "/a", "signal": "kill", "after_calls": 4}));
        assert_eq!((hard.signal, hard.times, hard.after_calls), (Some(9), Some(1), 4));
        assert_eq!(failure(json!({"path": "/a", "signal": "SIGTERM", "times": 3})).times, Some(3));
        for name in ["SIGSTOP", "SIGNOTHING"] {
            assert_eq!(parse(json!({"path": "/a", "signal": name})).unwrap_err().field, "params.signal");
        }
    }

    #[test]
    fn what_has_no_hook_is_refused_by_name() {
        for name in ["fsync", "close"] {
            let error = parse(json!({"path": "/a", "operations": ["read", name]})).unwrap_err();
            assert_eq!(error.field, "params.operations");
            assert!(error.problem.starts_with(name) && error.problem.contains("no security hook"), "{error}");
        }
        let error = parse(json!({"path": "/a", "operations": ["rename"]})).unwrap_err();
        assert!(error.problem.contains("open, create, read, write, mmap"), "{error}");
    }

    #[test]
    fn what_is_missing_or_absurd_is_named() {
        for (params, field) in [
            (json!({}), "params.path"),
            (json!({"path": "var/lib"}), "params.path"),
            (json!({"path": "/a", "errno": "ECONNREFUSED"}), "params.errno"),
            (json!({"path": "/a", "call_probability": -1}), "params.call_probability"),
            (json!({"path": "/a", "times": 0}), "params.times"),
        ] {
            assert_eq!(parse(params.clone()).unwrap_err().field, field, "{params}");
        }
    }

    #[test]
    fn a_group_or_processes_are_named_and_nothing_beside_them() {
        let whose = |target| {
            let params: FileParams = serde_json::from_value(json!({"path": "/a"})).unwrap();
            Ok(params.calls(&serde_json::from_value(target).unwrap())?.whose)
        };
        let group = whose(json!({"cgroup": "a"})).map_err(|error: SpecError| error.field);
        assert!(matches!(group, Ok(Whose::Cgroup(_))), "{group:?}");
        for target in [
            json!({"pid": 71}),
            json!({"container": "0123456789ab"}),
            json!({"exe": "/a", "unit": "a.service"}),
        ] {
            let found = whose(target.clone());
            assert!(matches!(found, Ok(Whose::Processes(_))), "{target}: {found:?}");
        }
        for (target, field) in [
            (json!({}), "target.cgroup"),
            (json!({"cgroup": "a", "unit": "a.service"}), "target.cgroup"),
            (json!({"cgroup": "a", "interface": "eth0"}), "target"),
            (json!({"pid": 71, "port": 80}), "target"),
            (json!({"pid": 71, "share": 0.5}), "target.share"),
        ] {
            assert_eq!(whose(target.clone()).unwrap_err().field, field, "{target}");
        }
    }

    #[test]
    fn every_operation_has_a_bit_of_its_own() {
        assert_eq!(OPERATIONS.iter().fold(0, |all, operation| all | operation.bit()).count_ones(), 5);
    }
}
