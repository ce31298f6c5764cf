//! SOCKS5 (RFC 1928) between a server and its proxy: no authentication, CONNECT, addresses and names.
//!
//! It reads what the server sends, and knows the answers. `peer_proxy` answers, and dials.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The answer to a greeting: go on without authentication.
pub const WELCOME: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// The answer to a greeting without a supported method.
const NO_WELCOME: [u8; 2] = [VERSION, NO_METHOD];

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

/// The reason for which nothing is requested.
#[derive(Debug, PartialEq, Eq)]
pub enum SocksError {
    /// The connection ended, or it is not of version 5, or a reserved byte is not zero: nothing that follows has a meaning.
    NotSocks5,
    /// The server wants what is not supported, and gets this answer.
    Refused(Vec<u8>),
}

impl From<io::Error> for SocksError {
    fn from(_: io::Error) -> Self {
        Self::NotSocks5
    }
}

impl SocksReply {
    /// Returns the whole reply; the bound address that it must carry means nothing to those who connect.
    pub fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }

    fn refusal(self) -> SocksError {
        SocksError::Refused(self.bytes().to_vec())
    }
}

/// Reads a greeting that offers to go on without authentication.
pub async fn greeting(from: &mut (impl AsyncRead + Unpin)) -> Result<(), SocksError> {
    expect(from.read_u8().await? == VERSION)?;
    let methods = counted(from).await?;
    match methods.contains(&NO_AUTHENTICATION) {
        true => Ok(()),
        false => Err(SocksError::Refused(NO_WELCOME.to_vec())),
    }
}

/// Reads a request.
pub async fn request(from: &mut (impl AsyncRead + Unpin)) -> Result<SocksRequest, SocksError> {
    expect(from.read_u8().await? == VERSION)?;
    let command = from.read_u8().await?;
    expect(from.read_u8().await? == 0)?;
    let host = host(from).await?;
    let port = from.read_u16().await?;
    match command {
        CONNECT => Ok(SocksRequest { host, port }),
        _ => Err(SocksReply::CommandNotSupported.refusal()),
    }
}

/// Reads the kind of a host, and the host.
async fn host(from: &mut (impl AsyncRead + Unpin)) -> Result<SocksHost, SocksError> {
    let address: IpAddr = match from.read_u8().await? {
        1 => Ipv4Addr::from(from.read_u32().await?).into(),
        4 => Ipv6Addr::from(from.read_u128().await?).to_canonical(),
        3 => {
            let name = String::from_utf8(counted(from).await?);
            let name = name.map_err(|_| SocksReply::HostUnreachable.refusal())?;
            // some send an address as a name
            return Ok(name.parse().map_or(SocksHost::Name(name), SocksHost::Address));
        }
        _ => return Err(SocksReply::AddressNotSupported.refusal()),
    };
    Ok(SocksHost::Address(address))
}

/// Reads the bytes that follow their number.
async fn counted(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(from.read_u8().await?)];
    from.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn expect(is_socks5: bool) -> Result<(), SocksError> {
    if is_socks5 { Ok(()) } else { Err(SocksError::NotSocks5) }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;

    /// Returns what is read from bytes that are all there.
    fn now<T>(reading: impl Future<Output = T>) -> T {
        match pin!(reading).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => panic!("it waits for bytes that are there"),
        }
    }

    fn greeted(mut bytes: &[u8]) -> (Result<(), SocksError>, &[u8]) {
        (now(greeting(&mut bytes)), bytes)
    }

    fn requested(mut bytes: &[u8]) -> (Result<SocksRequest, SocksError>, &[u8]) {
        (now(request(&mut bytes)), bytes)
    }

    fn asked(kind: u8, host: &[u8]) -> Vec<u8> {
        [&[5, 1, 0, kind], host, &[0x0b, 0x38]].concat()
    }

    /// Returns the host of a request of this kind.
    fn host_of(kind: u8, host: &[u8]) -> SocksHost {
        let whole = asked(kind, host);
        let (wanted, rest) = requested(&whole);
        let wanted = wanted.unwrap();
        assert_eq!((wanted.port, rest.len()), (2872, 0));
        wanted.host
    }

    #[test]
    fn addresses_of_both_kinds_and_names_are_understood_however_they_are_written() {
        let address = SocksHost::Address(IpAddr::from([172, 18, 0, 3]));
        assert_eq!(host_of(1, &[172, 18, 0, 3]), address);
        let six = Ipv6Addr::LOCALHOST;
        assert_eq!(host_of(4, &six.octets()), SocksHost::Address(six.into()));
        assert_eq!(host_of(3, b"\x05etcd2"), SocksHost::Name("etcd2".into()));
        let loopback = SocksHost::Address(Ipv4Addr::LOCALHOST.into());
        assert_eq!(host_of(3, b"\x09127.0.0.1"), loopback);
        assert_eq!(host_of(4, &Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets()), loopback);
    }

    #[test]
    fn what_ends_early_asks_for_nothing_and_what_follows_is_left() {
        for whole in [asked(1, &[127, 0, 0, 1]), asked(3, b"\x02n1"), asked(4, &[0; 16])] {
            for length in 0..whole.len() {
                let (early, _) = requested(&whole[..length]);
                assert_eq!(early, Err(SocksError::NotSocks5), "{length} of {whole:?}");
            }
            let more = [&whole[..], &[1, 2, 3]].concat();
            let (wanted, rest) = requested(&more);
            assert!(wanted.is_ok() && rest == [1_u8, 2, 3], "{wanted:?}");
        }
        assert_eq!(greeted(&[5, 2, 2]).0, Err(SocksError::NotSocks5));
        assert_eq!(greeted(&[5, 2, 2, 0, 9]), (Ok(()), &[9][..]));
    }

    #[test]
    fn what_is_not_done_is_refused_with_its_own_answer() {
        assert_eq!(greeted(&[4, 1]).0, Err(SocksError::NotSocks5));
        assert_eq!(greeted(b"GET / HTTP/1.1").0, Err(SocksError::NotSocks5));
        assert_eq!(greeted(&[5, 1, 2]).0, Err(SocksError::Refused(vec![5, 0xff])));
        let mut bind = asked(1, &[127, 0, 0, 1]);
        bind[1] = 2;
        for (bytes, reply) in [
            (bind, SocksReply::CommandNotSupported),
            (asked(9, &[127, 0, 0, 1]), SocksReply::AddressNotSupported),
            (asked(3, b"\x01\xff"), SocksReply::HostUnreachable),
        ] {
            assert_eq!(requested(&bytes).0, Err(reply.refusal()));
        }
        assert_eq!(SocksReply::Refused.bytes()[..2], [5, 5]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = greeted(&bytes);
            for start in [vec![], vec![5], vec![5, 1, 0], vec![5, 1, 0, 3]] {
                let _ = requested(&[start, bytes.clone()].concat());
            }
        }
    }
}
