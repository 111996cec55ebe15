//! Runs one scene of the demonstration: `demo partition` or `demo delay`. Started by `cargo xtask demo`.

use std::process::ExitCode;

use crate::demo::{self, Scene};

pub(super) fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let Some(scene) = Scene::parse(&argument) else {
        eprintln!("usage: demo partition|delay");
        return ExitCode::from(2);
    };
    if let Some(missing) = demo::missing() {
        eprintln!("demo: {missing}");
        return ExitCode::from(2);
    }
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    match demo::run(scene) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}
