//! Measures against the goals: `bench [--quick] [--only PART]... [--json FILE]`. Started by `cargo xtask bench`.

use std::process::ExitCode;

use crate::bench::{self, Options, PARTS};

pub(super) fn main() -> ExitCode {
    if let Some(code) = crate::aftermath::outlive() {
        return code;
    }
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("bench: {problem}\nusage: bench [--quick] [--only=PART]... [--json FILE]");
            return ExitCode::from(2);
        }
    };
    match bench::run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some(("--only", part)) if PARTS.iter().any(|(name, _)| *name == part) => {
                options.only.push(part.to_owned());
            }
            None if word == "--quick" => options.quick = true,
            None if word == "--json" => {
                options.json = Some(words.next().ok_or("--json needs a file")?.into());
            }
            _ => return Err(format!("{word:?} is not understood")),
        }
    }
    Ok(options)
}
