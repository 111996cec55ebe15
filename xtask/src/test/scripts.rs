//! Test programs in other languages, and other people's programs that check something of ours.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::chosen::Chosen;
use super::unless_lacking;
use crate::artifacts::{self, Artifacts};
use crate::error::Error;
use crate::said::believe;
use crate::summary::Tally;
use crate::{kubernetes, run, tools};

/// The official Python client against a real daemon.
pub(super) fn mcp_client(chosen: &Chosen) -> Result<Tally, Error> {
    let tools = tools::require(tools::PYTHON).and_then(|()| tools::require(tools::OBSERVERS));
    unless_lacking(chosen.step, tools, || script(chosen, "tests/mcp/run.py", &[]))
}

/// Documents under the real Chaos Toolkit, and the same ones natively.
pub(super) fn chaos_toolkit(chosen: &Chosen) -> Result<Tally, Error> {
    let tools = tools::require(tools::PYTHON).and_then(|()| tools::require(tools::OBSERVERS));
    unless_lacking(chosen.step, tools, || script(chosen, "tests/chaostoolkit/run.py", &[]))
}

/// Reports on runs as a browser draws them, and as the reports of Chaos Toolkit read them.
pub(super) fn report(chosen: &Chosen) -> Result<Tally, Error> {
    let tools = [tools::PYTHON, tools::BROWSER, tools::OBSERVERS].into_iter().try_for_each(tools::require);
    unless_lacking(chosen.step, tools, || script(chosen, "tests/report/run.py", &[]))
}

/// Probes of a real API server, which is built the first time.
pub(super) fn kubernetes_probes(chosen: &Chosen) -> Result<Tally, Error> {
    let tools = [tools::PYTHON, tools::KUBERNETES, tools::OBSERVERS].into_iter().try_for_each(tools::require);
    let mut server = PathBuf::new();
    let there = tools.and_then(|()| kubernetes::server()).map(|path| server = path);
    unless_lacking(chosen.step, there, || {
        script(chosen, "tests/kubernetes/run.py", &[("CHAOS_KUBE_APISERVER", &server)])
    })
}

/// The Vagrantfile with each provider: libvirt with its settings, VirtualBox without, which only VirtualBox itself can check.
pub(super) fn vagrant(chosen: &Chosen) -> Result<Tally, Error> {
    unless_lacking(chosen.step, tools::require(tools::VAGRANT), || {
        let mut tally = Tally::default();
        for (provider, options) in [("libvirt", [].as_slice()), ("virtualbox", &["--ignore-provider"])] {
            match validate(provider, options) {
                Ok(said) => {
                    println!("{provider}: {}", said.trim().lines().last().unwrap_or_default());
                    tally.pass(1);
                }
                Err(error) => tally.fail(format!("vagrant validate with {provider}: {error}")),
            }
        }
        Ok(tally)
    })
}

fn validate(provider: &str, options: &[&str]) -> Result<String, Error> {
    // Its state is ours to delete, and nobody is asked for a newer version.
    let state = run::vm_dir().join("vagrant");
    let mut command = Command::new("vagrant");
    command
        .arg("validate")
        .args(options)
        .current_dir(run::root().join("vagrant"))
        .env("VAGRANT_HOME", state.join("home"))
        .env("VAGRANT_DOTFILE_PATH", state.join("dot"))
        .env("VAGRANT_DEFAULT_PROVIDER", provider)
        .env("VAGRANT_CHECKPOINT_DISABLE", "1");
    run::text(&mut command)
}

/// A test program in another language. It gets `CHAOS_BIN_DIR`, and these variables, and its last line is `N passed, N failed, N
/// skipped`; lines that begin with `FAILED: ` or `skipped: ` say which.
fn script(chosen: &Chosen, path: &str, variables: &[(&str, &Path)]) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let built: Artifacts = artifacts::build()?;
    let mut command = Command::new(run::root().join(path));
    command.current_dir(run::root()).env("CHAOS_BIN_DIR", built.bin_dir()?).stderr(Stdio::inherit());
    command.envs(variables.iter().copied());
    believe(path, &mut command, &|cell| chosen.replay(cell), &mut tally)?;
    // A script is one cell.
    tally.cells = 1;
    Ok(tally)
}
