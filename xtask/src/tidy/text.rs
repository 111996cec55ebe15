//! Rules for single files: the doc on line 1, length of files and functions, SAFETY comments, lints inherited, words
//! that have no place in the tree.

use super::Source;

const LONGEST_FILE: usize = 600;
const LONGEST_FUNCTION: usize = 80;

/// Traces of somebody's own machine. Written in parts, so that this file passes its own rule.
const DENIED: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "root/."),
    concat!("/", "home/"),
    concat!("registry", ".npmjs.org"),
    concat!("index", ".crates.io"),
    concat!("static", ".crates.io"),
    concat!("files", ".pythonhosted.org"),
    concat!("proxy", ".golang.org"),
];

/// How a test would leave out a part of itself, and pass, where packets cannot be queued.
const HALF_A_TEST: &str = "has_netem()";
const TESTS: &str = "tests/src/kernel/";
/// Who skips whole tests, and who tests just that.
const MAY_ASK: &[&str] =
    &["tests/src/kernel/mod.rs", "tests/src/kernel/lacks.rs", "tests/src/kernel/dry_runs.rs"];

/// Everything that is wrong with one file, as `path:line: problem`.
pub(super) fn check(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    let mut add = |line: usize, problem: &str| problems.push(format!("{}:{line}: {problem}", source.path));
    for (index, line) in source.text.lines().enumerate() {
        if let Some(word) = DENIED.iter().find(|word| line.contains(**word)) {
            add(index + 1, &format!("{word:?} is of some machine, not of this project"));
        }
    }
    let is_test = source.path.starts_with(TESTS) && !MAY_ASK.contains(&source.path.as_str());
    for (index, _) in
        source.text.lines().enumerate().filter(|(_, line)| is_test && line.contains(HALF_A_TEST))
    {
        add(index + 1, "a test is skipped as a whole, by name: with_netem");
    }
    let member = source.path.ends_with("/Cargo.toml");
    if member && !source.text.contains("[lints]\nworkspace = true") {
        add(1, "does not inherit the lints: [lints] workspace = true");
    }
    if !source.is_rust() {
        return problems;
    }
    if !source.text.starts_with("//! ") {
        add(1, "does not open with a //! doc");
    }
    let lines: Vec<&str> = source.text.lines().collect();
    if lines.len() > LONGEST_FILE {
        add(LONGEST_FILE, &format!("{} lines; split it at a seam", lines.len()));
    }
    for (line, length) in long_functions(&lines) {
        add(line, &format!("a function of {length} lines"));
    }
    for line in unsafe_without_reason(&lines) {
        add(line, "unsafe without a SAFETY comment right above");
    }
    problems
}

/// First line and length of each function that is too long. rustfmt guarantees that a function's closing brace is
/// the first line with its own indentation.
fn long_functions(lines: &[&str]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let is_function = line
            .trim_start()
            .split(' ')
            .take_while(|word| {
                matches!(*word, "fn" | "async" | "unsafe" | "const" | "extern" | "\"C\"")
                    || word.starts_with("pub")
            })
            .any(|word| word == "fn");
        // What ends on its line, or has no body, is short.
        if !is_function || line.trim_end().ends_with(['}', ';']) {
            continue;
        }
        let close = format!("{}}}", " ".repeat(indent));
        let end = lines[start..].iter().position(|line| *line == close);
        if let Some(length) = end.map(|end| end + 1).filter(|length| *length > LONGEST_FUNCTION) {
            found.push((start + 1, length));
        }
    }
    found
}

/// Lines with `unsafe` whose comment or attribute lines right above say no SAFETY. clippy knows blocks; this
/// knows also `unsafe impl` and code that is compiled for another target only.
fn unsafe_without_reason(lines: &[&str]) -> Vec<usize> {
    let opens = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        // Between the quotes of a string, the word is only a word.
        ["unsafe {", "unsafe impl"]
            .iter()
            .any(|word| code.find(word).is_some_and(|at| code[..at].matches('"').count().is_multiple_of(2)))
    };
    let explained = |index: usize| {
        // The statement may have begun on an earlier line.
        let above = lines[..index].iter().rev().take(12);
        lines[index].contains("SAFETY:")
            || above.take_while(|line| !line.trim().is_empty()).any(|line| line.contains("SAFETY:"))
    };
    (0..lines.len())
        .filter(|index| opens(lines[*index]) && !explained(*index))
        .map(|index| index + 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&Source { path: path.into(), text: text.into() }).len()
    }

    #[test]
    fn each_rule_bites() {
        assert_eq!(problems("a.rs", "//! A.\nfn f() {}\n"), 0);
        assert_eq!(problems("a.rs", "fn f() {}\n"), 1);
        assert_eq!(problems("a.rs", &format!("//! A.\n{}", "x();\n".repeat(600))), 1);
        assert_eq!(problems("a.rs", &format!("//! A.\nfn f() {{\n{}}}\n", "    x();\n".repeat(80))), 1);
        assert_eq!(problems("a.rs", "//! A.\n\nlet x = unsafe { y() };\n"), 1);
        assert_eq!(problems("a.rs", "//! A.\n\n// SAFETY: z.\nlet x = unsafe { y() };\n"), 0);
        assert_eq!(problems("x/Cargo.toml", "[package]\n"), 1);
        let asks = format!("//! A.\n\nif {HALF_A_TEST} {{\n");
        assert_eq!((problems("tests/src/kernel/a.rs", &asks), problems(MAY_ASK[0], &asks)), (1, 0));
        assert_eq!(problems("x.md", &format!("see {}home/me\n", '/')), 1);
    }
}
