//! System accounts, by the files in which they must be (passwd(5), group(5)).
//!
//! Not by the name service: a privileged daemon that starts should neither ask the network nor load a plug-in to
//! learn of an account that its own package made.

use std::fs;
use std::io;

/// User and group id of a system account. `None` when it does not exist.
///
/// # Errors
/// When `/etc/passwd` cannot be read.
pub fn user(name: &str) -> io::Result<Option<(u32, u32)>> {
    Ok(fs::read_to_string("/etc/passwd")?.lines().find_map(|line| parse_user(line, name)))
}

/// Id of a group. `None` when it does not exist.
///
/// # Errors
/// When `/etc/group` cannot be read.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    Ok(fs::read_to_string("/etc/group")?.lines().find_map(|line| parse_group(line, name)))
}

fn parse_user(line: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = line.split(':');
    let (found, uid, gid) = (fields.next()?, fields.nth(1)?, fields.next()?);
    (found == name).then_some((uid.parse().ok()?, gid.parse().ok()?))
}

fn parse_group(line: &str, name: &str) -> Option<u32> {
    let mut fields = line.split(':');
    let (found, gid) = (fields.next()?, fields.nth(1)?);
    (found == name).then_some(gid.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        assert_eq!(parse_user("chaos:x:998:997::/:/usr/sbin/nologin", "chaos"), Some((998, 997)));
        assert_eq!(parse_user("chaosx:x:998:997::/:/bin/false", "chaos"), None);
        assert_eq!(parse_group("chaos:x:997:alice,bob", "chaos"), Some(997));
        assert_eq!(parse_group("", "chaos"), None);
        assert_eq!(user("root").unwrap(), Some((0, 0)));
        assert_eq!(group("root").unwrap(), Some(0));
    }
}
