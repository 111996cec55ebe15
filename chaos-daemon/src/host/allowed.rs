//! What the policy lets probes run: programs, and functions of Python modules. The injector says it to the runner in words.

use super::program::Programs;
use super::python::Python;
use crate::spec::SpecError;

/// What stands before the interpreter of Python, and what before a module. Programs are absolute paths.
const MARKS: [&str; 2] = ["python:", "module:"];

/// Programs, and what of Python may be called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Programs.
    pub programs: Programs,
    /// Modules of Python, and who runs them.
    pub python: Python,
}

impl Allowed {
    /// Whether nothing may be run.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.python.modules.is_empty()
    }

    /// In words.
    pub fn words(&self) -> Vec<String> {
        let [interpreter, module] = MARKS;
        let python = std::iter::once(format!("{interpreter}{}", self.python.interpreter));
        let modules = self.python.modules.iter().map(|name| format!("{module}{name}"));
        self.programs.words().iter().cloned().chain(python).chain(modules).collect()
    }

    /// What the words mean, which stand at `field`.
    ///
    /// # Errors
    /// Names what makes no sense.
    pub fn parse(field: &str, words: &[String]) -> Result<Self, SpecError> {
        let [interpreter, module] = MARKS;
        let (mut programs, mut python) = (Vec::new(), Python::default());
        for word in words {
            match (word.strip_prefix(interpreter), word.strip_prefix(module)) {
                (Some(path), _) => path.clone_into(&mut python.interpreter),
                (_, Some(name)) => python.modules.push(name.to_owned()),
                _ => programs.push(word.clone()),
            }
        }
        python.check(field)?;
        Ok(Self { programs: Programs::parse(field, &programs)?, python })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_reads_what_the_policy_says() {
        let programs = Programs::parse("x", &["/bin/sh".to_owned(), "/opt/checks/*".to_owned()]).unwrap();
        let python = Python { interpreter: "/opt/python3".into(), modules: vec!["a".into(), "b.c".into()] };
        for (allowed, is_empty) in [
            (Allowed { programs: programs.clone(), python: python.clone() }, false),
            (Allowed { programs: Programs::default(), python }, false),
            (Allowed { programs, python: Python::default() }, false),
            (Allowed::default(), true),
        ] {
            assert_eq!(Allowed::parse("--command", &allowed.words()).unwrap(), allowed);
            assert_eq!(allowed.is_empty(), is_empty);
        }
        assert!(Allowed::parse("--command", &["module:a b".to_owned()]).is_err());
        assert!(Allowed::parse("--command", &["sh".to_owned()]).is_err());
    }
}
