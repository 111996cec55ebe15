//! Programs that probes of the daemon may run: which the operator names, and whether nobody but root can change the file.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;

use crate::spec::SpecError;

/// The most symbolic links on the way to a file (path_resolution(7)).
pub(super) const MOST_LINKS: usize = 40;
/// Who may write to a file or a folder, beside its owner.
const OTHERS_WRITE: u32 = 0o022;
/// Who may execute a file.
const EXECUTE: u32 = 0o111;

/// Programs by their absolute paths, and folders all of whose files are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs(Vec<String>);

impl Programs {
    /// Understands paths such as `/usr/lib/payment/check` and `/usr/local/lib/checks/*`, which stand at `field`.
    ///
    /// # Errors
    /// Names the first that is none.
    pub fn parse(field: &str, words: &[String]) -> Result<Self, SpecError> {
        let is_one = |word: &str| {
            let path = word.strip_suffix("/*").unwrap_or(word);
            is_plain(path) && !path.contains('*')
        };
        match words.iter().find(|word| !is_one(word)) {
            None => Ok(Self(words.to_vec())),
            Some(odd) => {
                let problem = format!(
                    "{odd:?} is not the absolute path of a program, nor of a folder with /* at its end: give e.g. \
                     \"/usr/local/lib/checks/*\""
                );
                Err(SpecError::new(field, problem))
            }
        }
    }

    /// The paths as they were given.
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the program at `path` is one of them. What is in a folder below a folder is not.
    pub fn contains(&self, path: &str) -> bool {
        let within = |folder: &str| path.rsplit_once('/').is_some_and(|(above, _)| above == folder);
        is_plain(path)
            && self.0.iter().any(|word| match word.strip_suffix("/*") {
                Some(folder) => within(folder),
                None => word == path,
            })
    }
}

/// Whether `path` is absolute, and the only way to write it.
pub fn is_plain(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !matches!(part, "" | "." | "..")) && !rest.contains(char::is_control)
    })
}

/// Why a program is not run, or a file not believed.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// There is none, or it cannot be looked at.
    #[error("{path}: {source}")]
    Unseen {
        /// Where.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others than root could put another program in its place.
    #[error("{path} {problem}")]
    Changeable {
        /// The file, or a folder on the way to it.
        path: String,
        /// Who can change it.
        problem: String,
    },
    /// It is no program.
    #[error("{path} is no file that can be executed")]
    NoProgram {
        /// Where.
        path: String,
    },
}

/// The file at `path` with every symbolic link on the way resolved, if it is a program that only root can change, see [`roots`].
///
/// # Errors
/// Names what is not so.
pub fn trusted(path: &str) -> Result<PathBuf, Distrust> {
    // OPENS: the caller | the user chaos-probe | the policy names it (`probe_commands`); it is root's alone, with every folder
    // above
    let (place, found) = roots(Path::new(path))?;
    match found.is_file() && found.mode() & EXECUTE != 0 {
        true => Ok(place),
        false => Err(Distrust::NoProgram { path: place.display().to_string() }),
    }
}

/// What is at `path`, and where with every symbolic link on the way resolved, if only root can change it: so are the file, every folder on the
/// way to it, and every folder with a link on the way.
///
/// # Errors
/// Names what is not so.
pub fn roots(path: &Path) -> Result<(PathBuf, Metadata), Distrust> {
    walk(path, root_only)
}

/// Why a file or folder is not taken for the daemon's own.
#[derive(Debug, thiserror::Error)]
#[error(
    "{what} is not used, since nobody but root may be able to change it or a folder above it: chown it to root and take the right to \
     write from others (chmod go-w), or give another"
)]
pub struct Foreign {
    /// What it was to be.
    what: &'static str,
    /// What is not so.
    #[source]
    distrust: Distrust,
}

/// Whether nobody but root, or whoever runs this process, can change a file or folder of the daemon's own, which is its `what`, or
/// have another in its place. Where it is not there, of what is there of the way to it. In a folder like /tmp, where everybody may make
/// files and nobody take away another's (`S_ISVTX` of inode(7)), it may be.
///
/// # Errors
/// Names what is not so.
pub fn own(what: &'static str, path: &Path) -> Result<(), Foreign> {
    match judge(path) {
        Err(Distrust::Unseen { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        judged => judged.map_err(|distrust| Foreign { what, distrust }),
    }
}

fn judge(path: &Path) -> Result<(), Distrust> {
    let absolute = std::path::absolute(path).map_err(|source| unseen(path, source))?;
    let (place, found) = walk(&absolute, own_only)?;
    // Only what is on the way may be one for everybody.
    match found.mode() & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(changeable(&place, &found)),
    }
}

/// Follows a path, and asks of each file, folder and link on it whether it is believed.
fn walk(
    path: &Path,
    believed: impl Fn(&Path, Metadata) -> Result<Metadata, Distrust>,
) -> Result<(PathBuf, Metadata), Distrust> {
    let look =
        |path: &Path| believed(path, fs::symlink_metadata(path).map_err(|source| unseen(path, source))?);
    let mut done = PathBuf::from("/");
    let mut found = look(&done)?;
    let mut rest = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            done.pop();
            found = look(&done)?;
            continue;
        }
        let next = done.join(&part);
        let file = fs::symlink_metadata(&next).map_err(|source| unseen(&next, source))?;
        if file.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(unseen(&next, io::Error::from_raw_os_error(nix::libc::ELOOP)));
            }
            believed(&next, file)?;
            let target = fs::read_link(&next).map_err(|source| unseen(&next, source))?;
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            rest.extend(parts(&target));
            continue;
        }
        found = believed(&next, file)?;
        done = next;
    }
    Ok((done, found))
}

/// Every link has all rights in its mode, and nobody can change one but by way of its folder, or, in a folder for all, its owner.
fn root_only(path: &Path, file: Metadata) -> Result<Metadata, Distrust> {
    let closed = file.is_symlink() || file.mode() & OTHERS_WRITE == 0;
    if file.uid() == 0 && closed { Ok(file) } else { Err(changeable(path, &file)) }
}

fn own_only(path: &Path, file: Metadata) -> Result<Metadata, Distrust> {
    let for_all = file.is_dir() && file.mode() & libc::S_ISVTX != 0;
    let closed = file.is_symlink() || for_all || file.mode() & OTHERS_WRITE == 0;
    let ours = file.uid() == 0 || file.uid() == geteuid().as_raw();
    if ours && closed { Ok(file) } else { Err(changeable(path, &file)) }
}

fn changeable(path: &Path, file: &Metadata) -> Distrust {
    let problem = match file.mode() & OTHERS_WRITE {
        0 => format!("belongs to user {}", file.uid()),
        _ => format!("can be written by others than its owner (mode {:o})", file.mode() & 0o7777),
    };
    Distrust::Changeable { path: path.display().to_string(), problem }
}

fn unseen(path: &Path, source: io::Error) -> Distrust {
    Distrust::Unseen { path: path.display().to_string(), source }
}

/// What a path is made of, the last part first.
pub(super) fn parts(path: &Path) -> Vec<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn programs(words: &[&str]) -> Result<Programs, SpecError> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        Programs::parse("probe_commands", &words)
    }

    #[test]
    fn a_star_stands_for_the_files_of_one_folder_and_for_nothing_else() {
        let some = programs(&["/usr/lib/payment/check", "/usr/local/lib/checks/*"]).unwrap();
        for path in ["/usr/lib/payment/check", "/usr/local/lib/checks/a", "/usr/local/lib/checks/b.sh"] {
            assert!(some.contains(path), "{path}");
        }
        for path in [
            "/usr/lib/payment/check2",
            "/usr/lib/payment",
            "/usr/local/lib/checks",
            "/usr/local/lib/checks/",
            "/usr/local/lib/checks/deep/a",
            "/usr/local/lib/checks/../checks/a",
            "/usr/local/lib/checks/..",
            "/usr/lib//payment/check",
            "usr/lib/payment/check",
            "/usr/local/lib/checks/*",
            "check",
            "",
        ] {
            // A file may be called so.
            assert_eq!(some.contains(path), path.ends_with("checks/*"), "{path}");
        }
        assert!(!Programs::default().contains("/bin/true"));
    }

    #[test]
    fn what_is_no_absolute_path_is_refused_by_name() {
        for odd in [
            "check",
            "./check",
            "/usr/*/check",
            "/usr/lib/check*",
            "/usr/lib/../check",
            "*",
            "/*/*",
            "/",
            "",
            "/a/",
        ] {
            let error = programs(&["/bin/true", odd]).unwrap_err();
            assert!(error.field == "probe_commands" && error.problem.contains(odd), "{odd}: {error}");
        }
    }

    #[test]
    fn a_program_of_the_system_is_trusted_and_its_links_are_resolved() {
        let shell = trusted("/bin/sh").unwrap();
        assert_eq!(shell, fs::canonicalize("/bin/sh").unwrap());
    }

    #[test]
    fn a_program_that_others_may_change_and_what_is_none_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::copy("/bin/true", at("mine")).unwrap();
        symlink("/bin/true", at("link")).unwrap();
        for path in [at("mine"), at("link")] {
            // Anybody may write to the folder of temporary files.
            let error = trusted(&path).unwrap_err();
            assert!(matches!(error, Distrust::Changeable { .. }), "{error}");
            assert!(error.to_string().contains("can be written by others"), "{error}");
        }
        assert!(matches!(trusted("/etc/passwd"), Err(Distrust::NoProgram { .. })));
        assert!(matches!(trusted("/etc"), Err(Distrust::NoProgram { .. })));
        assert!(matches!(trusted("/bin/no-such-program"), Err(Distrust::Unseen { .. })));
    }

    #[test]
    fn a_folder_of_the_daemons_is_one_that_nobody_else_can_change_with_all_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["shut", "group", "all", "sticky"] {
            fs::create_dir_all(at(name).join("deep")).unwrap();
        }
        let change =
            |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        change("group", 0o775);
        change("all", 0o757);
        change("sticky", 0o1777);
        change("shut/deep", 0o700);
        fs::write(at("shut/policy"), "").unwrap();
        fs::write(at("shut/open"), "").unwrap();
        change("shut/open", 0o666);
        symlink("all/deep", at("link")).unwrap();
        symlink("shut/deep", at("good")).unwrap();
        let is_own = |name: &str| own("it", &at(name));
        for good in [
            "shut",
            "shut/deep",
            "shut/policy",
            "shut/none/yet",
            "sticky/deep",
            "sticky/none",
            "good",
            "good/..",
        ] {
            assert!(is_own(good).is_ok(), "{good}: {:?}", is_own(good));
        }
        for bad in [
            "group",
            "group/deep",
            "all",
            "all/none",
            "sticky",
            "shut/open",
            "link",
            "shut/../all",
            "all/deep/..",
        ] {
            let said = is_own(bad).map_err(|foreign| crate::request::chain(&foreign));
            let said = said.unwrap_err();
            assert!(
                said.contains("chmod go-w") && said.contains("can be written by others"),
                "{bad}: {said}"
            );
        }
        if geteuid().is_root() {
            for (name, owner) in [("shut/deep", 1), ("sticky/deep", 1), ("shut/policy", 65534)] {
                std::os::unix::fs::chown(at(name), Some(owner), None).unwrap();
                let said = crate::request::chain(&is_own(name).unwrap_err());
                assert!(said.contains(&format!("belongs to user {owner}")), "{name}: {said}");
            }
            std::os::unix::fs::lchown(at("good"), Some(1), None).unwrap();
            assert!(is_own("good").is_err(), "whoever has the link leads it elsewhere");
        }
    }

    #[test]
    fn the_owner_and_the_mode_of_a_file_decide() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "").unwrap();
        let with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            root_only(&path, fs::metadata(&path).unwrap()).map_err(|error| error.to_string())
        };
        match fs::metadata(&path).unwrap().uid() {
            0 => {
                assert!(with(0o755).is_ok() && with(0o555).is_ok());
                assert!(with(0o775).unwrap_err().contains("mode 775"));
                assert!(with(0o757).unwrap_err().contains("mode 757"));
            }
            uid => assert!(with(0o755).unwrap_err().contains(&format!("belongs to user {uid}"))),
        }
    }
}
