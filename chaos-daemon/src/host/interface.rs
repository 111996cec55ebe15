//! A network interface as the kernel knows it: by index, within one network namespace.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc::ifreq;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::netns::{NetNs, NetNsError};

nix::ioctl_readwrite_bad!(
    /// Reads the index of an interface (netdevice(7)).
    get_index, nix::libc::SIOCGIFINDEX, ifreq
);
nix::ioctl_readwrite_bad!(
    /// Reads the name of an interface (netdevice(7)).
    get_name, nix::libc::SIOCGIFNAME, ifreq
);
nix::ioctl_readwrite_bad!(
    /// Reads the type of hardware behind an interface (netdevice(7)).
    get_hardware_address, nix::libc::SIOCGIFHWADDR, ifreq
);

/// An interface of one namespace, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name at that moment; the kernel lets it change.
    pub name: String,
    /// Index: the identity within the namespace.
    pub index: u32,
    /// Whether its frames start with an Ethernet header, which the packet programs rely on (loopback's do).
    pub ethernet: bool,
}

impl Interface {
    /// Looks an interface up by name in `netns`; `None` when there is none.
    ///
    /// # Errors
    /// When the namespace cannot be entered or the kernel refuses the question.
    pub fn find(netns: &NetNs, name: &str) -> Result<Option<Self>, NetNsError> {
        netns.inside(|| find_here(name))
    }

    /// As [`Interface::find`], in the namespace that the calling thread is in.
    ///
    /// # Errors
    /// When the kernel refuses the question.
    pub fn find_here(name: &str) -> Result<Option<Self>, NetNsError> {
        find_here(name).map_err(NetNsError::Work)
    }

    /// Whether there is one of this index in the namespace that the calling thread is in. The kernel looks without a lock that
    /// somebody may hold for long (`netdev_get_name` in net/core/dev.c).
    ///
    /// # Errors
    /// When the kernel refuses the question.
    pub fn is_here(index: u32) -> io::Result<bool> {
        let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        // SAFETY: ifreq is plain old data; all zeroes is a valid value.
        let mut request: ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = index.cast_signed();
        // SAFETY: SIOCGIFNAME reads ifr_ifindex and writes ifr_name of the ifreq it is given.
        match unsafe { get_name(socket.as_raw_fd(), &raw mut request) } {
            Ok(_) => Ok(true),
            Err(Errno::ENODEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn find_here(name: &str) -> io::Result<Option<Interface>> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let Some(mut request) = request(name) else { return Ok(None) };
    // SAFETY: SIOCGIFINDEX reads ifr_name and writes ifr_ifindex of the ifreq it is given.
    match unsafe { get_index(socket.as_raw_fd(), &raw mut request) } {
        Ok(_) => {}
        Err(Errno::ENODEV) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // SAFETY: the call above has filled this member of the union.
    let index = unsafe { request.ifr_ifru.ifru_ifindex }.cast_unsigned();
    // SAFETY: SIOCGIFHWADDR reads ifr_name and writes ifr_hwaddr of the ifreq it is given.
    unsafe { get_hardware_address(socket.as_raw_fd(), &raw mut request) }?;
    // SAFETY: the call above has filled this member of the union. An `ARPHRD_*` type, says netdevice(7).
    let hardware = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
    let ethernet = matches!(hardware, nix::libc::ARPHRD_ETHER | nix::libc::ARPHRD_LOOPBACK);
    Ok(Some(Interface { name: name.to_owned(), index, ethernet }))
}

/// A question about the interface of this name; `None` when no interface can have it.
pub(super) fn request(name: &str) -> Option<ifreq> {
    // SAFETY: ifreq is plain old data; all zeroes is a valid value.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero: it ends the name.
    let room = request.ifr_name.len() - 1;
    if name.is_empty() || name.len() > room || name.contains('\0') {
        return None;
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte.cast_signed();
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_known_to_be_here_by_its_index() {
        let lo = Interface::find_here("lo").unwrap().unwrap();
        assert!(Interface::is_here(lo.index).unwrap());
        assert!(!Interface::is_here(i32::MAX.cast_unsigned()).unwrap());
    }
}
