//! Messages on the wire. Requests are built with `netlink-packet-route`; answers are kept as bytes and read only
//! as far as we need them. A typed answer that fails to decode would be dropped from its list without a word,
//! and an object that we cannot read must be an error, never an absence.

use netlink_packet_core::{
    DecodeError, DefaultNla, NLA_HEADER_SIZE, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
    NlasIterator, parse_string, parse_u32,
};
use netlink_packet_route::RouteNetlinkMessage;

/// Writes an attribute behind what is there, with the padding that follows it.
pub(super) fn put(bytes: &mut Vec<u8>, kind: u16, value: Vec<u8>) {
    // Here alone: a request has a length by this trait, too.
    use netlink_packet_core::Emitable;
    let attribute = DefaultNla::new(kind, value);
    let start = bytes.len();
    bytes.resize(start + attribute.buffer_len(), 0);
    attribute.emit(&mut bytes[start..]);
}

/// A message: typed on its way out, raw on its way in.
#[derive(Debug)]
pub(super) enum Wire {
    /// What we send.
    Request(RouteNetlinkMessage),
    /// What we send as it came from the kernel: the type, and the payload behind the netlink header.
    Raw(u16, Vec<u8>),
    /// What the kernel sends: the payload behind the netlink header.
    Answer(Vec<u8>),
}

impl NetlinkSerializable for Wire {
    fn message_type(&self) -> u16 {
        match self {
            Self::Request(message) => message.message_type(),
            Self::Raw(kind, _) => *kind,
            Self::Answer(_) => 0,
        }
    }

    fn buffer_len(&self) -> usize {
        match self {
            Self::Request(message) => message.buffer_len(),
            Self::Raw(_, bytes) | Self::Answer(bytes) => bytes.len(),
        }
    }

    fn serialize(&self, buffer: &mut [u8]) {
        match self {
            Self::Request(message) => message.serialize(buffer),
            Self::Raw(_, bytes) | Self::Answer(bytes) => buffer.copy_from_slice(bytes),
        }
    }
}

impl NetlinkDeserializable for Wire {
    type Error = DecodeError;

    fn deserialize(_header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self::Answer(payload.to_vec()))
    }
}

/// The attributes of a message, or nested in one.
pub(super) struct Attributes<'a>(Vec<(u16, &'a [u8])>);

impl<'a> Attributes<'a> {
    /// Splits `bytes` into attributes.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        NlasIterator::new(bytes)
            .map(|attribute| {
                let attribute = attribute?;
                let (kind, end) = (attribute.kind(), usize::from(attribute.length()));
                Ok((kind, &attribute.into_inner()[NLA_HEADER_SIZE..end]))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The attributes behind a message's fixed part of `skip` bytes.
    pub(super) fn behind(payload: &'a [u8], skip: usize) -> Result<Self, DecodeError> {
        let rest = payload.get(skip..).ok_or_else(|| DecodeError::buffer_too_small(payload.len(), skip))?;
        Self::parse(rest)
    }

    /// The first attribute of a kind.
    pub(super) fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.0.iter().find(|(found, _)| *found == kind).map(|(_, value)| *value)
    }

    /// A text, without its final NUL.
    pub(super) fn text(&self, kind: u16) -> Result<Option<String>, DecodeError> {
        self.get(kind).map(parse_string).transpose()
    }

    /// A number.
    pub(super) fn u32(&self, kind: u16) -> Result<Option<u32>, DecodeError> {
        self.get(kind).map(parse_u32).transpose()
    }

    /// The attributes inside one.
    pub(super) fn nested(&self, kind: u16) -> Result<Option<Self>, DecodeError> {
        self.get(kind).map(Self::parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_split_at_their_padding() {
        let bytes = [5, 0, 1, 0, b'x', 0, 0, 0, 8, 0, 2, 0x80, 1, 0, 0, 0];
        let attributes = Attributes::parse(&bytes).unwrap();
        assert_eq!(attributes.text(1).unwrap().unwrap(), "x");
        assert_eq!(attributes.u32(2).unwrap(), Some(1));
        assert_eq!(attributes.u32(3).unwrap(), None);
        assert!(attributes.u32(1).is_err());
    }

    #[test]
    fn a_cut_off_attribute_is_an_error_and_not_an_absence() {
        assert!(Attributes::parse(&[8, 0, 2, 0, 1, 0]).is_err());
        assert!(Attributes::parse(&[2, 0, 2, 0]).is_err());
        assert!(Attributes::behind(&[0; 4], 16).is_err());
    }
}
