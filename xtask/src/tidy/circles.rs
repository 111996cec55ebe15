//! Circles of files: each needs, in the end, all others, so that none can be read or changed first.
//!
//! A file needs another when it names something of it by a path. A name that a module passes on (`pub use part::Name`) is of the part.
//! That a module has parts, which it calls and which share what it defines, is no circle; nor does what only tests name count.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use super::rooms::statements;

const ROOT: &str = "chaos-daemon/src/";
/// The largest circle that is allowed. It only ever becomes less.
const MOST: usize = 3;

/// The module of a file, such as `["kernel", "netlink"]`.
type Module = Vec<String>;

/// What the file of a module says of others.
#[derive(Default)]
struct File {
    path: String,
    /// Paths that it names, from the root of the crate.
    named: BTreeSet<Module>,
    /// Names that it passes on, and what they are.
    passed_on: BTreeMap<String, Module>,
}

/// Files of which each needs, in the end, all others; by its path, and with those of them that it names itself.
pub(super) type Circle = BTreeMap<String, BTreeSet<String>>;

/// Circles with more files than are allowed, as `path:line: problem`.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let too_large = circles(sources).into_iter().filter(|circle| circle.len() > MOST);
    let problem = |circle: Circle| {
        let files: Vec<_> = circle.into_keys().collect();
        format!(
            "{}:1: a circle of {} files, where {MOST} are allowed: {}",
            files[0],
            files.len(),
            files.join(", ")
        )
    };
    too_large.map(problem).collect()
}

/// Every circle, the largest first.
pub(super) fn circles(sources: &[Source]) -> Vec<Circle> {
    let files = files(sources);
    let modules: Vec<&Module> = files.keys().collect();
    let place = |module: &Module| modules.iter().position(|known| *known == module);
    let mut needs = vec![BTreeSet::new(); modules.len()];
    for (at, (module, file)) in files.iter().enumerate() {
        let needed = file.named.iter().filter_map(|path| home(&files, path, 0));
        let needed = needed.filter(|other| !other.starts_with(module));
        needs[at] = needed.filter_map(place).collect();
    }
    let reached: Vec<BTreeSet<usize>> = (0..modules.len()).map(|from| reached(&needs, from)).collect();
    let mut circles = BTreeSet::new();
    for at in 0..modules.len() {
        let within: BTreeSet<_> =
            reached[at].iter().copied().filter(|other| reached[*other].contains(&at)).collect();
        let path = |at: &usize| files[modules[*at]].path.clone();
        let named = |at: &usize| needs[*at].intersection(&within).map(path).collect();
        let circle: Circle = within.iter().map(|at| (path(at), named(at))).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reached(needs: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        for needed in &needs[at] {
            if seen.insert(*needed) {
                next.push(*needed);
            }
        }
    }
    seen
}

/// The module in whose file the thing of this path is.
fn home<'a>(files: &'a BTreeMap<Module, File>, path: &[String], depth: usize) -> Option<&'a Module> {
    let known = (1..=path.len()).rev().find_map(|length| files.get_key_value(&path[..length]))?;
    let (module, file) = known;
    match path.get(module.len()).and_then(|name| file.passed_on.get(name)) {
        // A name that is passed on in a circle would be no program.
        Some(further) if depth < 8 => home(files, further, depth + 1),
        _ => Some(module),
    }
}

fn files(sources: &[Source]) -> BTreeMap<Module, File> {
    let mut files = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let Some(path) = source.path.strip_prefix(ROOT) else { continue };
        let stem = path.trim_end_matches(".rs");
        if stem.ends_with("tests")
            || stem.ends_with("fuzzed")
            || stem.ends_with("fake")
            || stem.starts_with("bin/")
            || stem == "lib"
        {
            continue;
        }
        let stem = stem.strip_suffix("/mod").unwrap_or(stem);
        files.insert(stem.split('/').map(str::to_owned).collect::<Module>(), source);
    }
    let known: BTreeSet<Module> = files.keys().cloned().collect();
    files.into_iter().map(|(module, source)| (module.clone(), read(&module, source, &known))).collect()
}

fn read(module: &Module, source: &Source, known: &BTreeSet<Module>) -> File {
    let mut file = File { path: source.path.clone(), ..File::default() };
    let mut of_tests = false;
    for (_, statement) in statements(&source.text) {
        let code = statement.trim();
        if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(any(test") {
            of_tests = true;
            continue;
        }
        if std::mem::take(&mut of_tests) {
            // A module of tests is the last thing in its file.
            if code.contains("mod ") && code.ends_with('{') {
                break;
            }
            continue;
        }
        let (passes_on, used) = match code.split_once("use ") {
            Some((before, tree)) if before.is_empty() || before.starts_with("pub") => {
                (before.starts_with("pub"), Some(tree))
            }
            _ => (false, None),
        };
        match used {
            Some(tree) => {
                for path in unfolded(tree.trim_end_matches(';')) {
                    let Some(path) = from_root(module, &path, known) else { continue };
                    if passes_on && let Some(name) = path.last() {
                        file.passed_on.insert(name.clone(), path.clone());
                    }
                    file.named.insert(path);
                }
            }
            None => file.named.extend(in_code(code).iter().filter_map(|path| from_root(module, path, known))),
        }
    }
    // Who only passes something on does not need it.
    let passed_on: BTreeSet<_> = file.passed_on.values().cloned().collect();
    file.named.retain(|path| !passed_on.contains(path));
    file
}

/// The paths of a tree of `use`, such as `super::{a, b::{self, C}}`.
fn unfolded(tree: &str) -> Vec<Module> {
    let tree = tree.trim();
    let Some((before, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let path = path.split("::").map(|part| part.trim().to_owned());
        return vec![path.filter(|part| !part.is_empty() && part != "*").collect()];
    };
    let before: Module =
        before.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    let list = rest.trim_end().trim_end_matches('}');
    for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth <= 0 || at == list.len() => {
                // The last brace of an inner tree may have been taken for the outer one.
                let part = &list[start..at];
                let missing =
                    part.matches('{').count() - part.matches('}').count().min(part.matches('{').count());
                for inner in unfolded(&format!("{part}{}", "}".repeat(missing))) {
                    let inner = inner.into_iter().filter(|name| name != "self");
                    found.push(before.iter().cloned().chain(inner).collect());
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|path: &Module| !path.is_empty());
    found
}

/// The paths that code names without `use`.
fn in_code(code: &str) -> Vec<Module> {
    let is_of_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let words = code.split(|letter| !is_of_path(letter)).filter(|word| word.contains("::"));
    words.map(|word| word.split("::").map(str::to_owned).filter(|part| !part.is_empty()).collect()).collect()
}

/// The same path from the root of the crate; `None` of what is of another crate.
fn from_root(module: &Module, path: &[String], known: &BTreeSet<Module>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut base = module.clone();
    match first.as_str() {
        "crate" => return Some(rest.to_vec()),
        "self" => return Some([base, rest.to_vec()].concat()),
        "super" => {
            base.pop();
            let supers = rest.iter().take_while(|part| *part == "super").count();
            base.truncate(base.len().saturating_sub(supers));
            return Some([base, rest[supers..].to_vec()].concat());
        }
        _ => {}
    }
    // A part of this module.
    base.push(first.clone());
    known.contains(&base).then(|| [base, rest.to_vec()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let source =
            |(path, text): &(&str, &str)| Source { path: format!("{ROOT}{path}"), text: (*text).into() };
        let circles = circles(&files.iter().map(source).collect::<Vec<_>>());
        circles.into_iter().map(|circle| circle.into_keys().collect()).collect()
    }

    #[test]
    fn files_that_need_each_other_are_a_circle_and_those_that_need_one_way_are_none() {
        assert!(
            tree(&[("a/b.rs", "use super::c::C;"), ("a/c.rs", "use crate::d::D;"), ("d.rs", "")]).is_empty()
        );
        let three = tree(&[
            ("a/b.rs", "use super::{c::C, e};"),
            ("a/c.rs", "fn f() { crate::d::f() }"),
            ("d.rs", "use crate::a::{e::E,\n    b::{self, B},\n};"),
            ("a/e.rs", ""),
        ]);
        let expected = ["a/b.rs", "a/c.rs", "d.rs"].map(|path| format!("{ROOT}{path}"));
        assert_eq!(three, [expected.to_vec()]);
    }

    #[test]
    fn a_name_that_is_passed_on_is_of_the_file_where_it_is() {
        let face = ("a/mod.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;");
        assert!(tree(&[face, ("a/b.rs", "use super::C;"), ("a/c.rs", "")]).is_empty());
        assert_eq!(tree(&[face, ("a/b.rs", "use super::C;"), ("a/c.rs", "use crate::a::B;")]).len(), 1);
    }

    #[test]
    fn what_only_tests_name_does_not_count() {
        let b =
            "use super::c;\n#[cfg(test)]\nuse super::d;\n#[cfg(test)]\nmod tests {\n    use crate::a::d;\n}";
        assert!(tree(&[("a/b.rs", b), ("a/c.rs", ""), ("a/d.rs", "use super::b;")]).is_empty());
    }
}
