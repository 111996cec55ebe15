//! An agent that has nothing but the tools, and says nothing that it has not read. Every word of every argument occurs in what it was
//! asked, in the list of tools, or in an earlier result.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::mcp::Mcp;

/// An agent with one task.
pub(crate) struct Agent<'a> {
    mcp: &'a Mcp,
    /// The words that it has read.
    read: BTreeSet<String>,
    /// The calls that it has made.
    calls: Vec<String>,
    most: usize,
}

impl<'a> Agent<'a> {
    /// One that is asked this, and may make so many calls.
    pub(crate) fn new(mcp: &'a Mcp, sentence: &str, most: usize) -> Result<Self> {
        let mut read: BTreeSet<_> = words(sentence).collect();
        learn(&mcp.tool_list()?, &mut read);
        Ok(Self { mcp, read, calls: Vec::new(), most })
    }

    /// Calls a tool, which must not refuse.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let made_up = made_up(&arguments, &self.read);
        if !made_up.is_empty() {
            let text = format!("{tool} {arguments}: nothing that was read has {made_up:?}");
            return Err(Error::Different(text));
        }
        self.calls.push(tool.to_owned());
        if self.calls.len() > self.most {
            return Err(Error::Different(format!("more than {} calls: {:?}", self.most, self.calls)));
        }
        let answer = self.mcp.call_tool(tool, arguments.clone())?;
        if answer.is_error {
            return Err(Error::Different(format!("{tool} {arguments} was refused: {}", answer.json)));
        }
        learn(&answer.json, &mut self.read);
        Ok(answer.json)
    }
}

/// The words of the arguments, names of fields too, that were not read.
fn made_up(arguments: &Value, read: &BTreeSet<String>) -> BTreeSet<String> {
    let mut said = BTreeSet::new();
    learn(arguments, &mut said);
    said.into_iter().filter(|word| !read.contains(word)).collect()
}

/// All words of a value.
fn learn(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            into.extend(words(name));
            learn(value, into);
        }),
        Value::Array(all) => all.iter().for_each(|value| learn(value, into)),
        Value::String(text) => into.extend(words(text)),
        // However it is written.
        Value::Number(number) => into.extend(number.as_f64().map(|number| number.to_string())),
        Value::Bool(_) | Value::Null => {}
    }
}

/// What is between spaces and punctuation.
fn words(text: &str) -> impl Iterator<Item = String> {
    let is_part = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    let all = text.split(move |letter| !is_part(letter)).map(|word| word.trim_end_matches('.'));
    all.filter(|word| !word.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_not_read_is_found_wherever_it_stands_in_an_argument() {
        let mut read: BTreeSet<_> = words("Cut shop.service off; stop above 5 % errors.").collect();
        learn(
            &json!({"url": "http://10.0.0.1:80/", "interface": "s0", "port": 5432, "arguments": ["--http"]}),
            &mut read,
        );
        let is_read = |arguments: Value| made_up(&arguments, &read).is_empty();
        assert!(is_read(
            json!({"arguments": ["--http", "http://10.0.0.1:5432", 5, 5432.0], "url": "shop.service"})
        ));
        for other in [
            json!({"url": "http://10.0.0.2:80/"}),
            json!({"name": "shop.service"}),
            json!({"url": {"interface": "eth0"}}),
            json!(["--https"]),
            json!(6),
            json!("s0-1"),
        ] {
            assert!(!is_read(other.clone()), "{other}");
        }
    }
}
