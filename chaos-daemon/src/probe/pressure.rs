//! Pressure: how much of the time work waits for a resource of this host, as the kernel counts it (PSI,
//! `Documentation/accounting/psi.rst` of Linux).

use std::fmt;
use std::io;
use std::time::Duration;

use nix::libc;
use serde::{Deserialize, Serialize};

use super::span::Span;
use super::{Sampler, Seen, blocking, instruments};
use crate::spec::SpecError;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resource {
    /// A processor.
    Cpu,
    /// Memory.
    Memory,
    /// Block devices.
    Io,
    /// Processors that are busy with interrupts.
    Irq,
}

/// Every resource.
pub const RESOURCES: &[Resource] = &[Resource::Cpu, Resource::Memory, Resource::Io, Resource::Irq];

impl Resource {
    /// Its name, which is that of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Irq => "irq",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Cpu => "/proc/pressure/cpu",
            Self::Memory => "/proc/pressure/memory",
            Self::Io => "/proc/pressure/io",
            Self::Irq => "/proc/pressure/irq",
        }
    }
}

/// Who waits.
pub const SHARES: &[&str] = &["some", "full"];
/// Over how long it is averaged, in seconds; or the sum since the start of the host.
pub const WINDOWS: &[&str] = &["avg10", "avg60", "avg300", "total"];

/// One number of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    resource: Resource,
    /// Whether all that has work waits, rather than some of it.
    full: bool,
    /// Which of [`WINDOWS`].
    window: usize,
}

impl Gauge {
    /// Understands the names of a resource, of who waits (`some`, but `full` for interrupts), and of a window (`avg10`).
    ///
    /// # Errors
    /// Names what there is not.
    pub fn parse(resource: &str, share: Option<&str>, window: Option<&str>) -> Result<Self, SpecError> {
        let known: Vec<_> = RESOURCES.iter().map(|resource| resource.name()).collect();
        let resource = RESOURCES.iter().copied().find(|known| known.name() == resource).ok_or_else(|| {
            SpecError::new("RESOURCE", format!("{resource:?} is not one of {}", known.join(", ")))
        })?;
        let full = match share {
            None => resource == Resource::Irq,
            Some("some") if resource == Resource::Irq => {
                let problem = "of irq the kernel counts \"full\" only";
                return Err(SpecError::new("--share", problem));
            }
            Some("some") => false,
            Some("full") => true,
            Some(other) => {
                let problem = format!("{other:?} is not one of {}", SHARES.join(", "));
                return Err(SpecError::new("--share", problem));
            }
        };
        let wanted = window.unwrap_or("avg10");
        let window = WINDOWS.iter().position(|known| *known == wanted).ok_or_else(|| {
            SpecError::new("--window", format!("{wanted:?} is not one of {}", WINDOWS.join(", ")))
        })?;
        Ok(Self { resource, full, window })
    }

    fn share(self) -> &'static str {
        SHARES[usize::from(self.full)]
    }

    fn window(self) -> &'static str {
        WINDOWS.get(self.window).copied().unwrap_or("avg10")
    }

    /// The number in what the kernel says.
    fn find(self, text: &str) -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(self.share())?.strip_prefix(' '))?;
        let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(name, _)| *name == self.window())?.1.parse().ok()
    }

    fn read(self) -> Result<Seen, String> {
        let text = instruments::read(self.resource.path()).map_err(|error| self.explain(&error))?;
        let value = self.find(&text).ok_or_else(|| {
            format!("this kernel does not say {} of {} in {:?}", self.window(), self.share(), text.trim())
        })?;
        let unit = if self.window() == "total" { "µs" } else { "%" };
        Ok(Seen::measured(value, format!("{value} {unit}")))
    }

    fn explain(self, error: &io::Error) -> String {
        let absent =
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::EOPNOTSUPP);
        match (absent, self.resource) {
            (true, Resource::Irq) => "this kernel keeps no pressure of interrupts: that needs Linux 6.1 with CONFIG_PSI \
                                      and CONFIG_IRQ_TIME_ACCOUNTING"
                .to_owned(),
            (true, _) => "this kernel keeps no pressure: that needs CONFIG_PSI, and psi=1 on the kernel's command line \
                          where it is off"
                .to_owned(),
            (false, _) => format!("reading {}: {error}", self.resource.path()),
        }
    }
}

impl Sampler for Gauge {
    async fn take(&self, limit: Duration) -> Seen {
        let gauge = *self;
        blocking(limit, move || gauge.read()).await.and_then(|read| read).into()
    }

    fn unit(&self) -> &'static str {
        if self.window() == "total" { "µs" } else { "%" }
    }

    fn span(&self, _: Duration) -> Span {
        if self.window() == "total" { Span::AMOUNT } else { Span::PERCENT }
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pressure of {}, {}", self.share(), self.resource.name(), self.window())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_was_asked_for_is_found() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=1234567\n\
                    full avg10=0.75 avg60=0.10 avg300=0.01 total=98765\n";
        for (share, window, value) in [
            (None, None, 1.5),
            (Some("some"), Some("avg60"), 0.25),
            (Some("full"), None, 0.75),
            (Some("full"), Some("avg300"), 0.01),
            (None, Some("total"), 1_234_567.0),
        ] {
            let found = Gauge::parse("memory", share, window).unwrap().find(text);
            assert_eq!(found, Some(value), "{share:?} {window:?}");
        }
        // Of interrupts, and of processors before 5.13, there is one line.
        let full = "full avg10=0.33 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(Gauge::parse("irq", None, None).unwrap().find(full), Some(0.33));
        assert_eq!(Gauge::parse("cpu", None, None).unwrap().find(full), None);
        assert_eq!(Gauge::parse("cpu", None, None).unwrap().find("something else"), None);
    }

    #[test]
    fn what_no_kernel_says_is_named() {
        for (resource, share, window, field) in [
            ("disk", None, None, "RESOURCE"),
            ("io", Some("most"), None, "--share"),
            ("irq", Some("some"), None, "--share"),
            ("io", None, Some("avg1"), "--window"),
        ] {
            assert_eq!(Gauge::parse(resource, share, window).unwrap_err().field, field);
        }
    }

    #[test]
    fn a_kernel_without_it_is_told_from_one_that_fails() {
        let gauge = Gauge::parse("io", None, None).unwrap();
        for errno in [libc::ENOENT, libc::EOPNOTSUPP] {
            assert!(gauge.explain(&io::Error::from_raw_os_error(errno)).contains("CONFIG_PSI"));
        }
        assert!(gauge.explain(&io::Error::from_raw_os_error(libc::EACCES)).contains("/proc/pressure/io"));
        let irq = Gauge::parse("irq", None, None).unwrap();
        assert!(irq.explain(&io::ErrorKind::NotFound.into()).contains("interrupts"));
    }
}
