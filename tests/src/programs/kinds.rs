//! Every kind of fault and who sees it act, a line of JSON each: for `cargo xtask kinds`.

use std::process::ExitCode;

use crate::kinds;

pub(super) fn main() -> ExitCode {
    for row in kinds::rows() {
        println!("{}", serde_json::json!(row));
    }
    ExitCode::SUCCESS
}
