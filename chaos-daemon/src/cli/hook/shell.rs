//! A line of shell, as far as it is plain: words, quotes, pipes, lists and redirections (POSIX.1-2024, Shell Command Language, 2).
//! Whatever a shell would put in place of something else makes a line not plain, so that nobody has to guess.

/// One command: its words, and the variables that are set for it alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Simple {
    pub(super) variables: Vec<String>,
    pub(super) words: Vec<Word>,
    /// The files that it reads by redirection.
    pub(super) reads: Vec<String>,
}

/// A word, without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Whether it has a pattern that the shell would put names of files in place of.
    pub(super) is_pattern: bool,
}

/// Words that begin what is more than a list of commands.
const KEYWORDS: &[&str] = &[
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in",
    "function", "select", "coproc", "{", "}", "[[",
];

/// The commands of a line, in order.
///
/// # Errors
/// What in it is not plain.
pub(super) fn read(line: &str) -> Result<Vec<Simple>, String> {
    let mut reader = Reader {
        rest: line.chars().peekable(),
        commands: Vec::new(),
        command: Simple::default(),
        word: None,
        is_quoted: false,
        redirects: None,
    };
    reader.read()?;
    Ok(reader.commands)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    commands: Vec<Simple>,
    command: Simple,
    /// The word that is being read; an empty one may be there by its quotes.
    word: Option<Word>,
    /// Whether some of that word is quoted.
    is_quoted: bool,
    /// The next word is where something is redirected to, or from.
    redirects: Option<Way>,
}

/// Which way a redirection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    To,
    From,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(letter) = self.rest.next() {
            match letter {
                ' ' | '\t' => self.end_word()?,
                '\n' | ';' | '|' | '&' => self.separator(letter)?,
                '<' | '>' => self.redirection(letter)?,
                '#' if self.word.is_none() => while self.rest.next_if(|next| *next != '\n').is_some() {},
                '\'' => self.single()?,
                '"' => self.double()?,
                '\\' => match self.rest.next() {
                    Some('\n') => {}
                    Some(escaped) => self.add(escaped, true),
                    None => return Err("it ends with a backslash".to_owned()),
                },
                '$' | '`' | '(' | ')' => {
                    return Err(format!("it has {letter:?}, which a shell puts something in place of"));
                }
                letter if letter.is_control() => {
                    return Err(format!("it has the control character {letter:?}"));
                }
                letter => {
                    if matches!(letter, '*' | '?' | '[' | '{' | '~') {
                        self.word.get_or_insert_default().is_pattern = true;
                    }
                    self.add(letter, false);
                }
            }
        }
        self.end_command()
    }

    fn add(&mut self, letter: char, is_quoted: bool) {
        self.is_quoted |= is_quoted;
        self.word.get_or_insert_default().text.push(letter);
    }

    fn single(&mut self) -> Result<(), String> {
        self.word.get_or_insert_default();
        self.is_quoted = true;
        loop {
            match self.rest.next() {
                Some('\'') => return Ok(()),
                Some(letter) => self.add(letter, true),
                None => return Err("a quote is not closed".to_owned()),
            }
        }
    }

    fn double(&mut self) -> Result<(), String> {
        self.word.get_or_insert_default();
        self.is_quoted = true;
        loop {
            match self.rest.next() {
                Some('"') => return Ok(()),
                Some(letter @ ('$' | '`')) => {
                    return Err(format!("it has {letter:?}, which a shell puts something in place of"));
                }
                Some('\\') => match self.rest.next() {
                    Some('\n') => {}
                    Some(escaped @ ('$' | '`' | '"' | '\\')) => self.add(escaped, true),
                    Some(other) => {
                        self.add('\\', true);
                        self.add(other, true);
                    }
                    None => return Err("a quote is not closed".to_owned()),
                },
                Some(letter) => self.add(letter, true),
                None => return Err("a quote is not closed".to_owned()),
            }
        }
    }

    fn separator(&mut self, letter: char) -> Result<(), String> {
        // To one shell a redirection, and to another the end of the command.
        if letter == '&' && self.rest.peek() == Some(&'>') {
            return Err("it has `&>`, which shells read in two ways: write `>file 2>&1`".to_owned());
        }
        while self.rest.next_if(|next| matches!(next, '|' | '&' | ';')).is_some() {}
        self.end_command()
    }

    fn redirection(&mut self, letter: char) -> Result<(), String> {
        // A number right before it is that of a descriptor.
        let is_number = |word: &Word| word.text.bytes().all(|byte| byte.is_ascii_digit());
        if !self.is_quoted && self.word.as_ref().is_some_and(is_number) {
            self.word = None;
        }
        self.end_word()?;
        match (letter, self.rest.peek()) {
            ('<', Some('<')) => return Err("it has a here-document".to_owned()),
            (_, Some('(')) => return Err("it has a substitution of a process".to_owned()),
            _ => while self.rest.next_if(|next| matches!(next, '>' | '&' | '|')).is_some() {},
        }
        self.redirects = Some(if letter == '<' { Way::From } else { Way::To });
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), String> {
        let is_quoted = std::mem::take(&mut self.is_quoted);
        let Some(word) = self.word.take() else { return Ok(()) };
        match self.redirects.take() {
            Some(Way::From) => {
                self.command.reads.push(word.text);
                return Ok(());
            }
            Some(Way::To) => return Ok(()),
            None => {}
        }
        let is_first = self.command.words.is_empty();
        if is_first && !is_quoted && KEYWORDS.contains(&word.text.as_str()) {
            return Err(format!("it has the keyword {:?}", word.text));
        }
        match word.text.split_once('=') {
            Some((name, _)) if is_first && is_name(name) => self.command.variables.push(word.text),
            // What is negated, and how long it takes, is the same command.
            _ if is_first && !is_quoted && word.text == "!" => {}
            _ => self.command.words.push(word),
        }
        Ok(())
    }

    fn end_command(&mut self) -> Result<(), String> {
        self.end_word()?;
        if self.redirects.take().is_some() {
            return Err("it redirects to nothing".to_owned());
        }
        let command = std::mem::take(&mut self.command);
        if command != Simple::default() {
            self.commands.push(command);
        }
        Ok(())
    }
}

/// The patterns of names of programs that a line may have which is not plain: whatever a shell would put in place of something else
/// stands there as `*`.
pub(super) fn patterns(line: &str) -> Vec<String> {
    let (mut patterns, mut last) = (Vec::new(), String::new());
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let in_place = match letter {
            ' ' | '\t' | '\n' | ';' | '|' | '&' | '(' | ')' | '<' | '>' | '=' | '`' => {
                patterns.push(std::mem::take(&mut last));
                continue;
            }
            '\'' | '"' | '\\' => continue,
            '$' => match letters.peek() {
                Some('{') => letters.by_ref().any(|letter| letter == '}'),
                // What it puts there is another piece of the line.
                Some('(') => true,
                _ => {
                    while letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_').is_some() {}
                    true
                }
            },
            '{' => letters.by_ref().any(|letter| letter == '}'),
            _ => false,
        };
        last.push(if in_place { '*' } else { letter });
    }
    patterns.push(last);
    patterns
}

/// Whether this may be the name of a variable, also of one that is appended to.
fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('+').unwrap_or(text);
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    text.starts_with(is_letter) && text.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<String>> {
        let commands = read(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        commands.into_iter().map(|it| it.words.into_iter().map(|word| word.text).collect()).collect()
    }

    #[test]
    fn words_are_what_a_shell_makes_of_them() {
        assert_eq!(words("a 'b c' \"d\\\"e\" f\\ g ''"), [vec!["a", "b c", "d\"e", "f g", ""]]);
        assert_eq!(words("c\"h\"a'o's\\ctl"), [vec!["chaosctl"]]);
        assert_eq!(words("a\\\nb # no more"), [vec!["ab"]]);
        assert_eq!(words("a|b&&c || d;e & f\n! g"), ["a", "b", "c", "d", "e", "f", "g"].map(|it| vec![it]));
        assert_eq!(words("a 2>&1 >b <c d 12"), [vec!["a", "d", "12"]]);
        let set = read("X=1 Y+=2 a Z=3").unwrap();
        assert_eq!(set[0].variables, ["X=1", "Y+=2"]);
        assert_eq!(set[0].words.len(), 2);
        assert!(read("/usr/bin/chaos*").unwrap()[0].words[0].is_pattern);
        assert!(!read("'a*'").unwrap()[0].words[0].is_pattern);
    }

    #[test]
    fn files_that_are_read_are_kept_and_those_that_are_written_are_not() {
        assert_eq!(read("sh <a 2>b >c < d").unwrap()[0].reads, ["a", "d"]);
    }

    #[test]
    fn patterns_have_a_star_for_whatever_a_shell_puts_there() {
        assert_eq!(patterns("a $B; \"c\"${d:-e}f|g{h,i}j"), ["a", "*", "", "c*f", "g*j"]);
        assert_eq!(patterns("x$(y z"), ["x*", "y", "z"]);
    }

    #[test]
    fn what_a_shell_puts_something_in_place_of_is_not_plain() {
        for line in [
            "a $b",
            "a \"$b\"",
            "a `b`",
            "a $(b)",
            "(a)",
            "a <<b",
            "a <(b)",
            "if a; then b; fi",
            "{ a; }",
            "a 'b",
            "a \"b",
            "a\\",
            "a \u{7}",
            "for x in y; do a; done",
            "a >",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
