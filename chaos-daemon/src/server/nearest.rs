//! The name that somebody may have meant.

/// The longest name that is looked at, in bytes: to compare two takes as long as both are long.
const LONGEST: usize = 128;
/// How alike two names have to be, from 0 to 1.
const ALIKE: f64 = 0.5;

/// What to do, and which of the names that there are is most like the one that there is not.
pub(super) fn or_nearest<'a>(advice: &str, wanted: &str, known: impl Iterator<Item = &'a str>) -> String {
    let alike = |name: &&str| strsim::normalized_damerau_levenshtein(wanted, name);
    let near = known.filter(|name| wanted.len().max(name.len()) <= LONGEST);
    let near = near.map(|name| (alike(&name), name)).filter(|(alike, _)| *alike >= ALIKE);
    match near.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((_, name)) => format!("{advice}; the nearest name is {name:?}"),
        None => advice.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_what_is_like_nothing_is_not() {
        let known = ["dependency-partition", "process-death", "slow-dependency"];
        let told = |wanted: &str| or_nearest("look", wanted, known.into_iter());
        assert_eq!(told("dependancy-partition"), "look; the nearest name is \"dependency-partition\"");
        assert_eq!(told("proces death"), "look; the nearest name is \"process-death\"");
        for wanted in ["", "meteor", "dependency-partition".repeat(10).as_str()] {
            assert_eq!(told(wanted), "look");
        }
    }
}
