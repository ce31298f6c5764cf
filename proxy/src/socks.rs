//! SOCKS5 as servers speak it to their way out (RFC 1928): no authentication, CONNECT, addresses and names.
//!
//! Pure: bytes in, what they ask or why they are refused out. Reading, dialling and answering is `egress`'s.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The answer to a greeting: go on without authentication.
pub const WELCOME: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// The answer to a greeting that offers nothing we do.
pub const NO_WELCOME: [u8; 2] = [VERSION, NO_METHOD];

/// Whom a peer wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Address(IpAddr),
    /// The proxy is to find out what it stands for.
    Name(String),
}

/// A CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub host: Host,
    pub port: u16,
}

/// What is sent in answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Connected = 0,
    HostUnreachable = 4,
    Refused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// Why bytes are no SOCKS5 that we take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Not version 5, or a reserved byte that is not zero: nobody knows what would be understood.
    NotSocks5,
    /// It wants to authenticate.
    NoMethod,
    /// It asks for something that has an answer of its own.
    Refused(Reply),
}

impl Reply {
    /// The whole answer; the bound address that it must carry means nothing to those who connect.
    pub fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Takes a greeting from the front of `bytes`; its length. `None`: not whole yet.
pub fn greeting(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let [version, methods, rest @ ..] = bytes else {
        return expect(bytes.first().is_none_or(|version| *version == VERSION)).map(|()| None);
    };
    expect(*version == VERSION)?;
    match rest.get(..usize::from(*methods)) {
        None => Ok(None),
        Some(methods) if methods.contains(&NO_AUTHENTICATION) => Ok(Some(2 + methods.len())),
        Some(_) => Err(Malformed::NoMethod),
    }
}

/// Takes a request from the front of `bytes`, with its length. `None`: not whole yet.
pub fn request(bytes: &[u8]) -> Result<Option<(Wanted, usize)>, Malformed> {
    let [version, command, reserved, kind, rest @ ..] = bytes else {
        return expect(bytes.first().is_none_or(|version| *version == VERSION)).map(|()| None);
    };
    expect(*version == VERSION && *reserved == 0)?;
    let Some((host, after)) = host(*kind, rest)? else {
        return Ok(None);
    };
    let [high, low, ..] = after else { return Ok(None) };
    if *command != CONNECT {
        return Err(Malformed::Refused(Reply::CommandNotSupported));
    }
    let length = bytes.len() - after.len() + 2;
    let port = u16::from_be_bytes([*high, *low]);
    Ok(Some((Wanted { host, port }, length)))
}

/// The host of this kind at the front of `bytes`, and what stands behind it.
fn host(kind: u8, bytes: &[u8]) -> Result<Option<(Host, &[u8])>, Malformed> {
    match kind {
        1 => Ok(bytes
            .split_first_chunk::<4>()
            .map(|(octets, after)| (Host::Address(Ipv4Addr::from(*octets).into()), after))),
        4 => Ok(bytes
            .split_first_chunk::<16>()
            .map(|(octets, after)| (Host::Address(Ipv6Addr::from(*octets).to_canonical()), after))),
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
                    name.parse().map_or_else(|_| Host::Name(name.to_owned()), Host::Address),
                    after,
                ))),
                Err(_) => Err(Malformed::Refused(Reply::HostUnreachable)),
            }
        }
        _ => Err(Malformed::Refused(Reply::AddressNotSupported)),
    }
}

fn expect(is_socks5: bool) -> Result<(), Malformed> {
    if is_socks5 { Ok(()) } else { Err(Malformed::NotSocks5) }
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

    fn wanted(bytes: &[u8]) -> Wanted {
        let (wanted, length) = request(bytes).unwrap().expect("it is whole");
        assert_eq!(length, bytes.len());
        wanted
    }

    #[test]
    fn addresses_of_both_kinds_and_names_are_understood() {
        let port = 2872;
        let four = Host::Address(IpAddr::from([172, 18, 0, 3]));
        assert_eq!(wanted(&asked(1, &[172, 18, 0, 3])), Wanted { host: four, port });
        let six = Host::Address(Ipv6Addr::LOCALHOST.into());
        assert_eq!(
            wanted(&asked(4, &Ipv6Addr::LOCALHOST.octets())),
            Wanted { host: six, port }
        );
        let name = Host::Name("etcd2".into());
        assert_eq!(wanted(&asked(3, b"\x05etcd2")), Wanted { host: name, port });
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let loopback = Host::Address(Ipv4Addr::LOCALHOST.into());
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
        assert_eq!(greeting(&[4, 1]), Err(Malformed::NotSocks5));
        assert_eq!(greeting(b"GET / HTTP/1.1"), Err(Malformed::NotSocks5));
        assert_eq!(greeting(&[5, 1, 2]), Err(Malformed::NoMethod));
        let mut bind = asked(1, &[127, 0, 0, 1]);
        bind[1] = 2;
        assert_eq!(request(&bind), Err(Malformed::Refused(Reply::CommandNotSupported)));
        let unknown = Malformed::Refused(Reply::AddressNotSupported);
        assert_eq!(request(&asked(9, &[127, 0, 0, 1])), Err(unknown));
        let no_text = Malformed::Refused(Reply::HostUnreachable);
        assert_eq!(request(&asked(3, b"\x01\xff")), Err(no_text));
        assert_eq!(Reply::Refused.bytes()[..2], [5, 5]);
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
