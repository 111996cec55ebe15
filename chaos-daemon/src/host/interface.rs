//! A network interface as the kernel knows it: by index, within one network namespace.

use std::io;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::netns::{NetNs, NetNsError};

nix::ioctl_readwrite_bad!(
    /// Reads the type of hardware behind an interface (netdevice(7)).
    get_hardware_address, nix::libc::SIOCGIFHWADDR,
    nix::libc::ifreq
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
}

fn find_here(name: &str) -> io::Result<Option<Interface>> {
    let index = match if_nametoindex(name) {
        Ok(index) => index,
        Err(nix::Error::ENODEV) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let hardware = hardware_type(&socket, name)?;
    let ethernet = matches!(hardware, nix::libc::ARPHRD_ETHER | nix::libc::ARPHRD_LOOPBACK);
    Ok(Some(Interface { name: name.to_owned(), index, ethernet }))
}

/// The `ARPHRD_*` type of an interface (netdevice(7)).
fn hardware_type(socket: &impl std::os::fd::AsRawFd, name: &str) -> io::Result<u16> {
    // SAFETY: ifreq is plain old data; all zeroes is a valid value.
    let mut request: nix::libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *slot = byte.cast_signed();
    }
    // SAFETY: SIOCGIFHWADDR reads ifr_name and writes ifr_hwaddr of the ifreq it is given.
    unsafe { get_hardware_address(socket.as_raw_fd(), &raw mut request) }?;
    // SAFETY: the call above has filled this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}
