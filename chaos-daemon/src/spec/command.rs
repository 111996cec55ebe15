//! What is looked for in command lines.

use regex_lite::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::units::SpecError;

/// The longest pattern, in bytes.
const LONGEST: usize = 512;
/// The most memory of one that is compiled, in bytes. A search takes up to that many steps for each character: what makes
/// `(a{0,99}){0,99}b` an error, and no work of minutes.
const LARGEST: usize = 64 << 10;

/// A regular expression that is looked for in a command line, whose words are joined by blanks. A plain word is one as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommandPattern(String);

impl CommandPattern {
    /// Parses a pattern, which stands at `field`.
    ///
    /// # Errors
    /// When it is empty, too long, no regular expression, or one that is compiled to too much.
    pub fn parse(field: &str, text: impl Into<String>) -> Result<Self, SpecError> {
        let text = text.into();
        if text.is_empty() || text.len() > LONGEST {
            let problem = format!("give a regular expression of 1 to {LONGEST} bytes");
            return Err(SpecError::new(field, problem));
        }
        let pattern = Self(text);
        pattern.compile(field)?;
        Ok(pattern)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What finds it; it stands at `field`.
    ///
    /// # Errors
    /// Never of one that was parsed.
    pub fn compile(&self, field: &str) -> Result<Regex, SpecError> {
        RegexBuilder::new(&self.0).size_limit(LARGEST).build().map_err(|error| {
            let text = &self.0;
            SpecError::new(
                field,
                format!("{text:?} is not a regular expression, or repeats too much: {error}"),
            )
        })
    }
}

impl TryFrom<String> for CommandPattern {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::parse("target", text)
    }
}

impl From<CommandPattern> for String {
    fn from(pattern: CommandPattern) -> Self {
        pattern.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_bounded_in_length_and_in_what_it_is_compiled_to() {
        let refused = |text: &str| {
            let error = CommandPattern::parse("target.command", text).unwrap_err();
            assert_eq!(error.field, "target.command", "{text:?}");
            error.problem
        };
        refused("");
        refused(&"a".repeat(LONGEST + 1));
        assert!(refused("(").contains("is not a regular expression"));
        assert!(refused("(a{0,99}){0,99}b").contains("repeats too much"));
        let longest = "a".repeat(LONGEST);
        for usual in [longest.as_str(), "--shard=[0-9]+$", r"^/usr/bin/\S+ (-\w+ ){0,20}serve .{0,200}x"] {
            let pattern = CommandPattern::parse("target.command", usual).unwrap();
            assert!(pattern.compile("target.command").is_ok(), "{usual}");
        }
    }
}
