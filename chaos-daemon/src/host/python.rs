//! Python modules whose functions probes may call, and who runs them.

use serde::Deserialize;

use super::program::is_plain;
use crate::spec::SpecError;

/// Where most systems have their Python.
const USUAL: &str = "/usr/bin/python3";

/// Python, as far as probes may use it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Python {
    /// The absolute path of the interpreter, which has chaostoolkit-lib and the modules. Default: `/usr/bin/python3`.
    pub interpreter: String,
    /// Modules whose functions may be called, and those below them. Default: none.
    pub modules: Vec<String>,
}

impl Default for Python {
    fn default() -> Self {
        Self { interpreter: USUAL.to_owned(), modules: Vec::new() }
    }
}

impl Python {
    /// Sees that it makes sense, where it stands at `field`.
    ///
    /// # Errors
    /// Names what does not.
    pub fn check(&self, field: &str) -> Result<(), SpecError> {
        if !is_plain(&self.interpreter) {
            let problem =
                format!("{:?} is not the absolute path of a program: give e.g. {USUAL:?}", self.interpreter);
            return Err(SpecError::new(format!("{field}.interpreter"), problem));
        }
        match self.modules.iter().find(|module| !is_module(module)) {
            None => Ok(()),
            Some(odd) => {
                let problem = format!("{odd:?} is no name of a module: give e.g. \"chaosprometheus\"");
                Err(SpecError::new(format!("{field}.modules"), problem))
            }
        }
    }

    /// Whether functions of this module may be called.
    pub fn allows(&self, module: &str) -> bool {
        let below = |above: &str| {
            module.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        is_module(module) && self.modules.iter().any(|above| below(above))
    }
}

/// Whether this is the whole name of a module, such as `chaoslib.provider`.
pub fn is_module(name: &str) -> bool {
    name.split('.').all(is_name)
}

/// Whether this is a name of Python, as far as ASCII has them.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_allowed_with_those_below_it_and_with_no_other() {
        let python =
            Python { modules: vec!["chaosprometheus".into(), "os.path".into()], ..Python::default() };
        assert!(python.check("probe_python").is_ok());
        for allowed in ["chaosprometheus", "chaosprometheus.probes", "os.path"] {
            assert!(python.allows(allowed), "{allowed}");
        }
        for other in
            ["os", "chaosprometheus2", "chaosprometheus.", "chaos", "", "os.path; import os", "os/path"]
        {
            assert!(!python.allows(other), "{other}");
        }
        assert!(!Python::default().allows("chaosprometheus"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let problem = |python: Python| python.check("probe_python").unwrap_err().field;
        let odd = Python { interpreter: "python3".into(), ..Python::default() };
        assert_eq!(problem(odd), "probe_python.interpreter");
        let odd = Python { modules: vec!["*".into()], ..Python::default() };
        assert_eq!(problem(odd), "probe_python.modules");
    }
}
