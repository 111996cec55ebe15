//! What a document has `chaosctl` do about a fault, as a mapping or as a list: the command, what it is about, and the options with their
//! values. Each knows where it stands.

use std::collections::BTreeMap;
use std::vec;

use serde_json::{Map, Value};

use crate::spec::SpecError;
use crate::spec::options::Takes;

/// The options that are known once these are: the command, and what it is about. An error says what is wrong with that.
pub(super) type Table = fn(&str, Option<&str>) -> Result<BTreeMap<String, Takes>, String>;

/// What was said to `chaosctl`.
#[derive(Debug)]
pub(super) struct Arguments {
    /// Where all of it stands.
    pub(super) at: String,
    /// The command, such as `inject`.
    pub(super) command: String,
    /// What it is about: a type of fault, or the name of one.
    pub(super) about: Option<Word>,
    /// Options, in the order in which they were given.
    pub(super) options: Vec<Given>,
    /// Words that are no options.
    pub(super) words: Vec<Word>,
    /// What stands behind `--`, if that is there.
    pub(super) rest: Option<Vec<Word>>,
}

/// Where something stands below all the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Index(usize),
    Key(String),
}

/// A word.
#[derive(Debug, Clone)]
pub(super) struct Word {
    place: Place,
    pub(super) text: String,
}

/// An option.
#[derive(Debug)]
pub(super) struct Given {
    place: Place,
    /// Without dashes.
    pub(super) name: String,
    pub(super) value: Option<String>,
}

impl Place {
    fn within(&self, at: &str) -> String {
        match self {
            Self::Index(index) => format!("{at}[{index}]"),
            Self::Key(key) => format!("{at}.{key}"),
        }
    }
}

impl Arguments {
    /// Reads the arguments that stand at `at`.
    ///
    /// # Errors
    /// Says which of them is none, or is not in the table.
    pub(super) fn read(at: &str, arguments: Value, table: Table) -> Result<Self, SpecError> {
        let (at, command) = (at.to_owned(), String::new());
        let empty = Self { at, command, about: None, options: Vec::new(), words: Vec::new(), rest: None };
        match arguments {
            Value::Object(mapping) => empty.with_mapping(mapping, table),
            Value::Array(items) => empty.with_list(items, table),
            other => Err(empty.wrong(format!("a mapping or a list is needed, not {other}"))),
        }
    }

    /// The command comes first, for a mapping has no order of its own.
    fn with_mapping(mut self, mut mapping: Map<String, Value>, table: Table) -> Result<Self, SpecError> {
        let command = COMMANDS.iter().find_map(|command| mapping.remove_entry(*command));
        let (command, about) = command.ok_or_else(|| self.wrong(NO_COMMAND.to_owned()))?;
        let place = Place::Key(command.clone());
        let about = text(about).map_err(|problem| self.at(&place, problem))?;
        let about = (!about.is_empty()).then_some(about);
        let known = table(&command, about.as_deref()).map_err(|problem| self.at(&place, problem))?;
        self.about = about.map(|text| Word { place, text });
        self.command = command;
        for (key, value) in mapping {
            self.add_entry(key, value, &known)?;
        }
        Ok(self)
    }

    fn add_entry(
        &mut self,
        key: String,
        value: Value,
        known: &BTreeMap<String, Takes>,
    ) -> Result<(), SpecError> {
        let place = Place::Key(key.clone());
        // A repeated option, which a mapping can say only so.
        let values = if let Value::Array(values) = value { values } else { vec![value] };
        for value in values {
            let value = text(value).map_err(|problem| self.at(&place, problem))?;
            let value = (!value.is_empty()).then_some(value);
            match key.strip_prefix("--") {
                None if key.is_empty() => {}
                None if key.starts_with('-') && key != "-" => {
                    return Err(self.at(&place, NO_OPTION.to_owned()));
                }
                None => self.words.push(Word { place: place.clone(), text: key.clone() }),
                Some("") => return Err(self.at(&place, NO_ORDER.to_owned())),
                Some(option) => {
                    self.add_option(place.clone(), option, value, known)?;
                    continue;
                }
            }
            self.words.extend(value.map(|text| Word { place: place.clone(), text }));
        }
        Ok(())
    }

    fn with_list(mut self, items: Vec<Value>, table: Table) -> Result<Self, SpecError> {
        let mut words = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let place = Place::Index(index);
            let text = text(item).map_err(|problem| self.at(&place, problem))?;
            words.push(Word { place, text });
        }
        words.retain(|word| !word.text.is_empty());
        let mut words = words.into_iter();
        let mut known = table("", None).map_err(|problem| self.wrong(problem))?;
        while let Some(word) = words.next() {
            match word.text.strip_prefix("--") {
                Some("") => {
                    self.rest = Some(words.collect());
                    break;
                }
                Some(option) => {
                    let value = behind(option, &known, &mut words);
                    self.add_option(word.place.clone(), option, value, &known)?;
                }
                None if word.text.starts_with('-') && word.text != "-" => {
                    return Err(self.at(&word.place, format!("{}: {NO_OPTION}", word.text)));
                }
                None if self.command.is_empty() => {
                    if !COMMANDS.contains(&word.text.as_str()) {
                        return Err(self.at(&word.place, NO_COMMAND.to_owned()));
                    }
                    self.command = word.text;
                }
                None if self.about.is_none() => {
                    let about = table(&self.command, Some(&word.text));
                    known = about.map_err(|problem| self.at(&word.place, problem))?;
                    self.about = Some(word);
                }
                None => self.words.push(word),
            }
        }
        match self.command.is_empty() {
            false => Ok(self),
            true => Err(self.wrong(NO_COMMAND.to_owned())),
        }
    }

    /// An option as it was typed, without its dashes: its value may stand in it, behind `=`.
    fn add_option(
        &mut self,
        place: Place,
        typed: &str,
        value: Option<String>,
        known: &BTreeMap<String, Takes>,
    ) -> Result<(), SpecError> {
        let (name, value, is_bound) = match (typed.split_once('='), value) {
            (None, value) => (typed, value, false),
            (Some((name, bound)), None) => (name, Some(bound.to_owned()), true),
            (Some((name, _)), Some(_)) => {
                let given = Given { place, name: name.to_owned(), value: None };
                return Err(self.wrong_option(&given, "has two values".to_owned()));
            }
        };
        let given = Given { place, name: name.to_owned(), value };
        let problem = match (known.get(name), &given.value) {
            (None, _) => {
                let names: Vec<_> = known.keys().map(|name| format!("--{name}")).collect();
                Some(format!("is not known here: the options are {}", names.join(", ")))
            }
            (Some(Takes::Nothing), None) => None,
            (Some(Takes::Nothing), Some(value)) => Some(format!("takes no value, and was given {value:?}")),
            (Some(_), None) => Some("needs a value".to_owned()),
            (Some(takes), Some(value)) if !is_bound && !takes.accepts(value) => Some(format!(
                "needs a value, and {value:?} looks like an option: give \"--{name}={value}\" in a list"
            )),
            (Some(_), Some(_)) => None,
        };
        match problem {
            Some(problem) => Err(self.wrong_option(&given, problem)),
            None => {
                self.options.push(given);
                Ok(())
            }
        }
    }

    /// An error about all of it.
    pub(super) fn wrong(&self, problem: String) -> SpecError {
        SpecError::new(self.at.clone(), problem)
    }

    /// An error about this word.
    pub(super) fn wrong_word(&self, word: &Word, problem: String) -> SpecError {
        self.at(&word.place, problem)
    }

    /// An error about this option. Where it stands in a list does not say which it is.
    pub(super) fn wrong_option(&self, given: &Given, problem: String) -> SpecError {
        let option = format!("--{}", given.name);
        match given.place == Place::Key(option.clone()) {
            true => self.at(&given.place, problem),
            false => self.at(&given.place, format!("{option}: {problem}")),
        }
    }

    /// An error as a command line has it, of which the field is an option: with the place of that, if it was given.
    pub(super) fn placed(&self, error: SpecError) -> SpecError {
        let name = error.field.strip_prefix("--");
        match self.options.iter().find(|given| Some(given.name.as_str()) == name) {
            Some(given) => self.wrong_option(given, error.problem),
            None => self.wrong(error.to_string()),
        }
    }

    fn at(&self, place: &Place, problem: String) -> SpecError {
        SpecError::new(place.within(&self.at), problem)
    }
}

/// The commands about faults that have a place in an experiment. The words of the other one, `probe`, have a parser of their own.
const COMMANDS: [&str; 2] = ["inject", "remove"];
const NO_COMMAND: &str = "only chaosctl inject, probe and remove have a place in an experiment";
const NO_OPTION: &str = "is no option: those begin with two dashes";
const NO_ORDER: &str = "a mapping has no order, and what stands behind -- needs one: give a list";

/// The value of an option in a list, if it is the next word.
fn behind(option: &str, known: &BTreeMap<String, Takes>, words: &mut vec::IntoIter<Word>) -> Option<String> {
    let takes = known.get(option)?;
    let next = words.as_slice().first()?;
    match takes.accepts(&next.text) {
        true => words.next().map(|word| word.text),
        false => None,
    }
}

/// A value as `chaosctl` would be given it.
fn text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Ok(String::new()),
        Value::Bool(_) => Err(format!(
            "{value} cannot be an argument: give text or a number, and \"\" to an option that takes no value"
        )),
        other => Err(format!("{other} cannot be an argument: give text or a number")),
    }
}
