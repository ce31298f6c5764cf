//! SOCKS5 (RFC 1928) between a server and its proxy: no authentication, CONNECT, addresses and names.
//!
//! Pure: it turns bytes into a request or the reason of a refusal. `peer_proxy` reads, dials and answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The answer to a greeting: go on without authentication.
pub const WELCOME: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// The answer to a greeting without a supported method.
pub const NO_WELCOME: [u8; 2] = [VERSION, NO_METHOD];

/// The host of a server's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksHost {
    Address(IpAddr),
    /// A name that the proxy resolves.
    Name(String),
}

/// A CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocksRequest {
    pub host: SocksHost,
    pub port: u16,
}

/// The reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocksReply {
    Connected = 0,
    HostUnreachable = 4,
    Refused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// The reason for which bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocksError {
    /// Not version 5, or a reserved byte that is not zero: nothing that follows has a meaning.
    NotSocks5,
    /// The client wants to authenticate.
    NoMethod,
    /// A request with a reply of its own.
    Refused(SocksReply),
}

impl SocksReply {
    /// Returns the whole reply; the bound address that it must carry means nothing to those who connect.
    pub fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Parses a greeting at the front of `bytes`; returns its length. `None`: not whole yet.
pub fn greeting(bytes: &[u8]) -> Result<Option<usize>, SocksError> {
    let [version, methods, rest @ ..] = bytes else {
        return expect(bytes.first().is_none_or(|version| *version == VERSION)).map(|()| None);
    };
    expect(*version == VERSION)?;
    match rest.get(..usize::from(*methods)) {
        None => Ok(None),
        Some(methods) if methods.contains(&NO_AUTHENTICATION) => Ok(Some(2 + methods.len())),
        Some(_) => Err(SocksError::NoMethod),
    }
}

/// Parses a request at the front of `bytes`; returns its length, too. `None`: not whole yet.
pub fn request(bytes: &[u8]) -> Result<Option<(SocksRequest, usize)>, SocksError> {
    let [version, command, reserved, kind, rest @ ..] = bytes else {
        return expect(bytes.first().is_none_or(|version| *version == VERSION)).map(|()| None);
    };
    expect(*version == VERSION && *reserved == 0)?;
    let Some((host, after)) = host(*kind, rest)? else {
        return Ok(None);
    };
    let [high, low, ..] = after else { return Ok(None) };
    if *command != CONNECT {
        return Err(SocksError::Refused(SocksReply::CommandNotSupported));
    }
    let length = bytes.len() - after.len() + 2;
    let port = u16::from_be_bytes([*high, *low]);
    Ok(Some((SocksRequest { host, port }, length)))
}

/// Parses the host of this kind at the front of `bytes`; returns the bytes after it, too.
fn host(kind: u8, bytes: &[u8]) -> Result<Option<(SocksHost, &[u8])>, SocksError> {
    match kind {
        1 => Ok(bytes
            .split_first_chunk::<4>()
            .map(|(octets, after)| (SocksHost::Address(Ipv4Addr::from(*octets).into()), after))),
        4 => Ok(bytes
            .split_first_chunk::<16>()
            .map(|(octets, after)| (SocksHost::Address(Ipv6Addr::from(*octets).to_canonical()), after))),
        3 => {
            let Some((length, rest)) = bytes.split_first() else {
                return Ok(None);
            };
            let Some((name, after)) = rest.split_at_checked(usize::from(*length)) else {
                return Ok(None);
            };
            match std::str::from_utf8(name) {
                // some send an address as a name
                Ok(name) => Ok(Some((
                    name.parse()
                        .map_or_else(|_| SocksHost::Name(name.to_owned()), SocksHost::Address),
                    after,
                ))),
                Err(_) => Err(SocksError::Refused(SocksReply::HostUnreachable)),
            }
        }
        _ => Err(SocksError::Refused(SocksReply::AddressNotSupported)),
    }
}

fn expect(is_socks5: bool) -> Result<(), SocksError> {
    if is_socks5 { Ok(()) } else { Err(SocksError::NotSocks5) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(kind: u8, host: &[u8]) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, kind];
        bytes.extend(host);
        bytes.extend([0x0b, 0x38]);
        bytes
    }

    fn wanted(bytes: &[u8]) -> SocksRequest {
        let (wanted, length) = request(bytes).unwrap().expect("it is whole");
        assert_eq!(length, bytes.len());
        wanted
    }

    #[test]
    fn addresses_of_both_kinds_and_names_are_understood() {
        let port = 2872;
        let four = SocksHost::Address(IpAddr::from([172, 18, 0, 3]));
        assert_eq!(wanted(&asked(1, &[172, 18, 0, 3])), SocksRequest { host: four, port });
        let six = SocksHost::Address(Ipv6Addr::LOCALHOST.into());
        assert_eq!(
            wanted(&asked(4, &Ipv6Addr::LOCALHOST.octets())),
            SocksRequest { host: six, port }
        );
        let name = SocksHost::Name("etcd2".into());
        assert_eq!(wanted(&asked(3, b"\x05etcd2")), SocksRequest { host: name, port });
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let loopback = SocksHost::Address(Ipv4Addr::LOCALHOST.into());
        assert_eq!(wanted(&asked(3, b"\x09127.0.0.1")).host, loopback);
        assert_eq!(
            wanted(&asked(4, &Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets())).host,
            loopback
        );
    }

    #[test]
    fn every_prefix_is_not_whole_yet_and_what_follows_is_left() {
        for whole in [asked(1, &[127, 0, 0, 1]), asked(3, b"\x02n1"), asked(4, &[0; 16])] {
            for length in 0..whole.len() {
                assert_eq!(request(&whole[..length]), Ok(None), "{length} of {whole:?}");
            }
            let more = [whole.clone(), vec![1, 2, 3]].concat();
            assert_eq!(request(&more).unwrap().unwrap().1, whole.len());
        }
        assert_eq!(greeting(&[5, 2, 2]), Ok(None));
        assert_eq!(greeting(&[5, 2, 2, 0, 9]), Ok(Some(4)));
    }

    #[test]
    fn what_is_not_done_is_refused_with_its_own_answer() {
        assert_eq!(greeting(&[4, 1]), Err(SocksError::NotSocks5));
        assert_eq!(greeting(b"GET / HTTP/1.1"), Err(SocksError::NotSocks5));
        assert_eq!(greeting(&[5, 1, 2]), Err(SocksError::NoMethod));
        let mut bind = asked(1, &[127, 0, 0, 1]);
        bind[1] = 2;
        assert_eq!(
            request(&bind),
            Err(SocksError::Refused(SocksReply::CommandNotSupported))
        );
        let unknown = SocksError::Refused(SocksReply::AddressNotSupported);
        assert_eq!(request(&asked(9, &[127, 0, 0, 1])), Err(unknown));
        let no_text = SocksError::Refused(SocksReply::HostUnreachable);
        assert_eq!(request(&asked(3, b"\x01\xff")), Err(no_text));
        assert_eq!(SocksReply::Refused.bytes()[..2], [5, 5]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_take_more_than_there_is(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some(length)) = greeting(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            for start in [vec![], vec![5], vec![5, 1, 0], vec![5, 1, 0, 3]] {
                let bytes = [start, bytes.clone()].concat();
                if let Ok(Some((_, length))) = request(&bytes) {
                    prop_assert!(length <= bytes.len());
                }
            }
        }
    }
}
