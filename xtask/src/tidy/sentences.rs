//! Sentences of documents and doc comments that are too long to be read once. A file may keep those that it has, and gets no new ones:
//! how many each has is in `long_sentences.txt`, which `cargo xtask tidy --fix` lowers, and never raises.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use super::Source;
use crate::error::Error;
use crate::run;

/// The most words of a sentence.
const MOST_WORDS: usize = 30;
/// How many longer ones each file may have.
const LIST: &str = "xtask/src/tidy/long_sentences.txt";
/// A full stop after these ends no sentence.
const ABBREVIATIONS: [&str; 6] = ["e.g.", "i.e.", "etc.", "cf.", "vs.", "no."];

/// Where a sentence begins that is too long, and how many words it has.
#[derive(Debug, PartialEq, Eq)]
struct Long {
    line: usize,
    words: usize,
}

/// Files with more long sentences than they had, or with fewer than the list says.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let allowed = allowed(sources);
    let is_gone = |path: &&&str| !sources.iter().any(|source| source.path == **path);
    let mut problems: Vec<_> = allowed
        .keys()
        .filter(is_gone)
        .map(|path| format!("{LIST}: {path} is no file: give its number to the file that it has become"))
        .collect();
    for source in sources {
        let found = long_sentences(source);
        let allowed = allowed.get(source.path.as_str()).copied().unwrap_or_default();
        if found.len() > allowed {
            let places: Vec<_> =
                found.iter().map(|Long { line, words }| format!("{line} ({words})")).collect();
            problems.push(format!(
                "{}: sentences of more than {MOST_WORDS} words: {}, and no more than {allowed} before; by line: {}",
                source.path,
                found.len(),
                places.join(", ")
            ));
        } else if found.len() < allowed {
            problems.push(format!(
                "{LIST}: {} has {} long sentences, and no longer {allowed}: cargo xtask tidy --fix",
                source.path,
                found.len()
            ));
        }
    }
    problems
}

/// Lowers the numbers of the list to what there is.
pub(super) fn fix(sources: &[Source]) -> Result<(), Error> {
    let allowed = allowed(sources);
    let mut text = String::new();
    for source in sources {
        let allowed = allowed.get(source.path.as_str()).copied().unwrap_or_default();
        let kept = long_sentences(source).len().min(allowed);
        if kept > 0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{kept} {}", source.path);
        }
    }
    let path = run::root().join(LIST);
    fs::write(&path, text).map_err(Error::file("write", &path))
}

/// The numbers of the list, by file.
fn allowed(sources: &[Source]) -> BTreeMap<&str, usize> {
    let list = sources.iter().find(|source| source.path == LIST);
    let lines = list.into_iter().flat_map(|list| list.text.lines());
    lines
        .filter_map(|line| {
            let (count, path) = line.split_once(' ')?;
            Some((path, count.parse().ok()?))
        })
        .collect()
}

/// The sentences of a file that are too long, in order.
fn long_sentences(source: &Source) -> Vec<Long> {
    let is_rust = source.is_rust();
    if !is_rust && !source.path.ends_with(".md") {
        return Vec::new();
    }
    let mut reader = Reader::default();
    for (number, line) in source.text.lines().enumerate() {
        let text = match is_rust {
            true => doc(line),
            false => Some(line.trim_start()),
        };
        reader.take(number + 1, text);
    }
    reader.end_block();
    reader.found
}

/// What a line of a doc comment says.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.trim_start())
}

/// Reads Markdown line by line.
#[derive(Debug, Default)]
struct Reader {
    /// Whether the line is between fences.
    is_code: bool,
    /// Whether a piece of code has begun that does not end on its line.
    is_piece: bool,
    /// Where the sentence began that goes on, and its words so far.
    begun: Option<Long>,
    found: Vec<Long>,
}

impl Reader {
    /// The next line; none of what is no text.
    fn take(&mut self, number: usize, text: Option<&str>) {
        let Some(text) = text else {
            self.is_code = false;
            return self.end_block();
        };
        if text.starts_with("```") {
            self.is_code = !self.is_code;
            return self.end_block();
        }
        if self.is_code || text.is_empty() {
            return self.end_block();
        }
        if text.starts_with('|') {
            self.end_block();
            for cell in cells(text) {
                self.words(number, cell);
                self.end_block();
            }
            return;
        }
        let is_numbered =
            text.split_once(". ").is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let is_heading = text.starts_with('#');
        if is_heading || is_numbered || text.starts_with("- ") || text.starts_with("* ") {
            self.end_block();
        }
        self.words(number, text);
        if is_heading {
            self.end_block();
        }
    }

    fn words(&mut self, number: usize, text: &str) {
        for word in self.without_code(text).split_whitespace() {
            if word.contains(char::is_alphanumeric) {
                self.begun.get_or_insert(Long { line: number, words: 0 }).words += 1;
            }
            let bare = word.trim_end_matches([')', '"', '*', '_', '\'']);
            if bare.ends_with(['.', '?', '!']) && !ABBREVIATIONS.contains(&bare.trim_start_matches('(')) {
                self.end_sentence();
            }
        }
    }

    /// The text with each piece of code as one word.
    fn without_code(&mut self, text: &str) -> String {
        let mut words = String::new();
        for (index, part) in text.split('`').enumerate() {
            if index > 0 {
                self.is_piece = !self.is_piece;
                words.push_str(if self.is_piece { "code" } else { "" });
            }
            words.push_str(if self.is_piece { "" } else { part });
        }
        words
    }

    /// A piece of code does not go on in another block.
    fn end_block(&mut self) {
        self.is_piece = false;
        self.end_sentence();
    }

    fn end_sentence(&mut self) {
        self.found.extend(self.begun.take().filter(|sentence| sentence.words > MOST_WORDS));
    }
}

/// The cells of a line of a table. A border is no part of code, and has no backslash before it.
fn cells(text: &str) -> Vec<&str> {
    let (mut cells, mut begin, mut is_code, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '`' => is_code = !is_code,
            '|' if !is_code && !is_escaped => {
                cells.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
        is_escaped = letter == '\\';
    }
    cells.push(&text[begin..]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = Source { path: path.into(), text: text.into() };
        long_sentences(&source).into_iter().map(|long| long.line).collect()
    }

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn a_sentence_of_a_document_is_counted_over_lines_up_to_its_end() {
        let (most, half) = (words(30), words(16));
        assert_eq!(lines("a.md", &format!("{most}.\n\n{half}\n{half}\n")), [3]);
        assert_eq!(lines("a.md", &format!("One. {half} e.g. {half}. {half}.\n")), [1]);
        assert_eq!(lines("a.md", &format!("`a\nb`. {half}\n{half}\n")), [2]);
        for text in [
            format!("# {half}\n{half}\n"),
            format!("{half} `a\nb`. {half}\n"),
            format!("| {half} `a | b` \\| {half}| {half} |\n").replace(&half, &words(14)),
            format!("- {half}\n- {half}\n1. {half}\n| {half} | {half} |\n# {half}\n"),
            format!("```\n{most} more\n```\n`{most} more`\n"),
        ] {
            assert_eq!(lines("a.md", &text), Vec::<usize>::new(), "{text}");
        }
        assert_eq!(lines("a.txt", &format!("{most} more\n")), Vec::<usize>::new());
    }

    #[test]
    fn of_a_program_only_its_doc_comments_are_read() {
        let long = words(31);
        let text =
            format!("//! {long}\n\n/// Short.\nfn a() {{}} // {long}\n    /// {long}\n    fn b() {{}}\n");
        assert_eq!(lines("a.rs", &text), [1, 5]);
    }

    #[test]
    fn a_file_may_keep_its_long_sentences_and_gets_no_new_one() {
        let long = format!("{}.\n\n", words(31));
        let sources = |listed: &str, count: usize| {
            [(LIST, listed.to_owned()), ("a.md", long.repeat(count))]
                .map(|(path, text)| Source { path: path.into(), text })
        };
        assert_eq!(check(&sources("2 a.md\n", 2)), Vec::<String>::new());
        assert_eq!(
            check(&sources("1 a.md\n", 2)),
            ["a.md: sentences of more than 30 words: 2, and no more than 1 before; by line: 1 (31), 3 (31)"]
        );
        assert!(
            check(&sources("3 a.md\n", 2))[0].starts_with("xtask/src/tidy/long_sentences.txt: a.md has 2")
        );
        assert_eq!(check(&sources("", 1)).len(), 1);
        assert!(check(&sources("2 a.md\n1 b.md\n", 2))[0].contains("b.md is no file"));
    }
}
