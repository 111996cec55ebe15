//! Regular expressions that callers give, bounded in length and in what they are compiled to: a document may have a hundred.

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind, Look};

use super::SpecError;

/// The longest, in bytes.
const LONGEST: usize = 1024;
/// The most memory of one that is compiled, and likewise of what a search by it keeps: what makes `(\w{99}){99}` an error, and no
/// work of minutes.
const LARGEST: usize = 1 << 20;

/// Understands the expression that was given at `field`.
///
/// # Errors
/// When it is none, or larger than others that are read beside it may be.
pub fn expression(field: &str, given: &str) -> Result<Regex, SpecError> {
    let wrong = |problem| SpecError::new(field, problem);
    if given.len() > LONGEST {
        return Err(wrong(format!("give a regular expression of at most {LONGEST} bytes")));
    }
    let compiled = RegexBuilder::new(given).size_limit(LARGEST).dfa_size_limit(LARGEST).build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => wrong(format!("{given:?} repeats too much: give a simpler one")),
        error => {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
            wrong(format!("{given:?} is not an expression known here: {reason}"))
        }
    })
}

/// Whether an expression is found in every text, because it is found in nothing where a text begins or ends.
pub fn is_in_every_text(pattern: &str) -> bool {
    let Ok(hir) = regex_syntax::parse(pattern) else { return false };
    [true, false].into_iter().any(|start| is_empty(&hir, start))
}

/// Whether it is found in nothing at the start of every text, or at the end of every text.
fn is_empty(hir: &Hir, start: bool) -> bool {
    match hir.kind() {
        HirKind::Empty => true,
        HirKind::Literal(_) | HirKind::Class(_) => false,
        HirKind::Look(look) => match look {
            Look::Start | Look::StartLF | Look::StartCRLF => start,
            Look::End | Look::EndLF | Look::EndCRLF => !start,
            _ => false,
        },
        HirKind::Repetition(repeated) => repeated.min == 0 || is_empty(&repeated.sub, start),
        HirKind::Capture(captured) => is_empty(&captured.sub, start),
        HirKind::Concat(parts) => parts.iter().all(|part| is_empty(part, start)),
        HirKind::Alternation(parts) => parts.iter().any(|part| is_empty(part, start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_bounded_in_length_and_in_what_it_is_compiled_to() {
        let problem = |given: &str| expression("tolerance.pattern", given).map_err(|error| error.problem);
        for usual in ["", r"^\w+@\w+\.\w+$", "(?i)error|warn(ing)?", &"a".repeat(LONGEST)] {
            assert!(problem(usual).is_ok(), "{usual}");
        }
        for (given, told) in [
            ("(", "not an expression known here"),
            (r"\w{100}", "repeats too much"),
            ("(a{100}){1000}", "repeats too much"),
            (&"a".repeat(LONGEST + 1), "at most 1024 bytes"),
        ] {
            assert!(problem(given).is_err_and(|problem| problem.contains(told)), "{given}");
        }
    }
}
