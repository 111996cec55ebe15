//! The command line reads the daemon's answers as the types that the daemon writes. It looks up nothing by the text of a key, as far
//! as the text of a program shows that.

use super::Source;

/// Where answers are types that the program is linked with.
pub(super) const COMMAND_LINE: &str = "chaos-daemon/src/cli/";

/// A file that looks something up.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let found = of_command_line(sources).map(|source| (source, look_ups(source)));
    let problem = |(source, count): (&Source, usize)| {
        format!(
            "{}: values looked up by the text of a key: {count}; read the answer as the type of its tool",
            source.path
        )
    };
    found.filter(|(_, count)| *count > 0).map(problem).collect()
}

/// How many there are in all.
pub(super) fn all(sources: &[Source]) -> usize {
    of_command_line(sources).map(look_ups).sum()
}

fn of_command_line(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|source| source.path.starts_with(COMMAND_LINE))
}

/// How often a value is looked up by the text of its key.
fn look_ups(source: &Source) -> usize {
    let code = source.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    if source.path.ends_with("tests.rs") {
        return 0;
    }
    // A list of strings has no value before it.
    let indexed = code.match_indices("[\"").filter(|(at, _)| {
        code[..*at].ends_with(|before: char| before.is_alphanumeric() || "_)]".contains(before))
    });
    let calls = [".get(\"", ".get_mut(\"", ".pointer(\"", ".pointer_mut(\"", ".remove(\""];
    indexed.count() + calls.iter().map(|call| code.matches(call).count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_that_are_looked_up_by_a_string_count() {
        let text = "let a = seen[\"name\"].get(\"b\");\nfor each in [\"x\", \"y\"] { run(&[\"z\"]) }";
        assert_eq!(look_ups(&Source { path: "a.rs".into(), text: text.into() }), 2);
    }

    #[test]
    fn a_file_of_the_command_line_that_looks_something_up_is_named() {
        let source =
            |path: &str| Source { path: path.into(), text: "let run = answer[\"run\"].take();\n".into() };
        let problems = check(&[source("chaos-daemon/src/cli/a.rs"), source("chaos-daemon/src/mcp/b.rs")]);
        assert!(
            problems.len() == 1 && problems[0].starts_with("chaos-daemon/src/cli/a.rs: values looked up"),
            "{problems:?}"
        );
    }
}
