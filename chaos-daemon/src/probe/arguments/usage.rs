//! What there is to say to a probe, for who has said something else.

use clap::CommandFactory as _;

use super::Line;
use crate::probe::KINDS;

/// The longest text that is told, in bytes.
const LONGEST: usize = 6 << 10;

/// How a probe of this kind is written, with all its options; of a kind that there is not, which there are.
pub fn usage(kind: Option<&str>) -> String {
    let mut line = Line::command();
    line.build();
    let known = kind.and_then(|kind| line.find_subcommand_mut(kind));
    let Some(probe) = known else { return format!("the first word is one of {}", KINDS.join(", ")) };
    // It is no command by itself.
    let text = probe.render_help().to_string().replacen("chaos-daemon ", "", 1);
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let mut told = String::new();
    // `--help` and `--json` are of the shell.
    for line in
        lines.by_ref().filter(|line| !["--help", "--json", "--socket"].iter().any(|of| line.contains(of)))
    {
        if told.len() + line.len() > LONGEST {
            break;
        }
        told.push_str(line);
        told.push('\n');
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_each_kind_has_its_options_and_of_no_kind_the_kinds() {
        for kind in KINDS {
            let told = usage(Some(kind));
            assert!(told.contains("Usage:") && told.contains("--max"), "{kind}: {told}");
            assert!(told.len() < LONGEST && !told.contains("--json"), "{kind}: {told}");
        }
        assert!(usage(Some("series")).contains("--samples <NUMBER>"));
        assert!(usage(Some("meteor")).contains("prometheus") && usage(None).contains("tcp"));
    }
}
