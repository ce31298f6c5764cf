//! The names of messages that a user may type ([`MessageKind`]), and the messages on the wire that each of them selects.

use super::MessageName;

/// The protocol of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// ZooKeeper's framed records.
    Zk,
    /// RESP2 and RESP3: Redis.
    Resp,
    /// gRPC over HTTP/2 without TLS: etcd.
    Grpc,
    /// Version 3 of PostgreSQL's own protocol.
    Postgres,
    /// The protocol of MySQL and MariaDB.
    Mysql,
    /// The client protocol of NATS.
    Nats,
    /// A protocol that no tap reads: its messages have no names and are not counted.
    Opaque,
}

/// The name of a message as it was typed, or seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageKind {
    name: MessageName,
    /// Messages that the name selects besides the one of that name.
    family: &'static [&'static str],
    /// Whether it selects every message but pings.
    any: bool,
}

impl MessageKind {
    /// Selects the messages of this name and no other, such as one that was seen on the wire.
    pub const fn exactly(name: MessageName) -> Self {
        Self {
            name,
            family: &[],
            any: false,
        }
    }

    /// Selects every message, but those that say only that a client is there.
    pub fn any() -> Self {
        Self {
            any: true,
            ..Self::exactly(MessageName::new(b"any"))
        }
    }

    /// Whether it selects a message by its number alone.
    pub fn is_any(&self) -> bool {
        self.any
    }

    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Whether it selects a message on the wire.
    pub fn means(&self, name: &MessageName) -> bool {
        if self.any {
            return !name.is_ping();
        }
        *name == self.name || self.family.iter().any(|meant| *meant == name.as_str())
    }
}

impl Protocol {
    /// Returns every name that may be typed.
    pub fn names(self) -> Vec<&'static str> {
        let names = match self {
            Self::Zk => return ZK.iter().map(|(name, _)| *name).collect(),
            Self::Resp => RESP,
            Self::Grpc => GRPC,
            Self::Postgres => POSTGRES,
            Self::Mysql => MYSQL,
            Self::Nats => NATS,
            Self::Opaque => "",
        };
        names.split_ascii_whitespace().collect()
    }

    /// Returns the message of that name, in capitals or not.
    pub fn spoken(self, name: &str) -> Option<MessageKind> {
        let mut names = self.names().into_iter();
        let name = names.find(|known| known.eq_ignore_ascii_case(name))?;
        let family = FAMILIES
            .iter()
            .find(|(protocol, head, _)| *protocol == self && *head == name);
        Some(MessageKind {
            name: MessageName::new(name.as_bytes()),
            family: family.map_or(&[], |(_, _, family)| family),
            any: false,
        })
    }
}

/// Names that select several messages, in which libraries spell the same step differently.
const FAMILIES: &[(Protocol, &str, &[&str])] = &[
    (Protocol::Resp, "SET", &["SET", "SETNX", "SETEX", "PSETEX"]),
    (
        Protocol::Resp,
        "EXPIRE",
        &["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"],
    ),
    (Protocol::Resp, "EVAL", &["EVAL", "EVALSHA", "FCALL"]),
    (Protocol::Resp, "DEL", &["DEL", "UNLINK", "DELIFEQ", "DELEX"]),
    (Protocol::Postgres, "BEGIN", &["BEGIN", "START"]),
    (Protocol::Postgres, "COMMIT", &["COMMIT", "END"]),
    (Protocol::Postgres, "ROLLBACK", &["ROLLBACK", "ABORT"]),
    (
        Protocol::Postgres,
        "advisory_lock",
        &["try_advisory_lock", "advisory_xact_lock", "try_advisory_xact_lock"],
    ),
    (Protocol::Mysql, "BEGIN", &["BEGIN", "START"]),
    (Protocol::Mysql, "RELEASE_LOCK", &["RELEASE_LOCK", "RELEASE_ALL_LOCKS"]),
    (Protocol::Nats, "delete", &["delete", "remove", "purge"]),
];

/// Requests of ZooKeeper, each with its numbers: variants that differ in what they answer go by one name.
const ZK: &[(&str, &[i32])] = &[
    ("connect", &[]),
    ("create", &[1, 15, 19, 21]),
    ("delete", &[2]),
    ("exists", &[3]),
    ("getData", &[4]),
    ("setData", &[5]),
    ("getACL", &[6]),
    ("setACL", &[7]),
    ("getChildren", &[8, 12]),
    ("sync", &[9]),
    ("ping", &[11]),
    ("check", &[13]),
    ("multi", &[14, 22]),
    ("reconfig", &[16]),
    ("checkWatches", &[17]),
    ("removeWatches", &[18]),
    ("deleteContainer", &[20]),
    ("auth", &[100]),
    ("setWatches", &[101, 105]),
    ("sasl", &[102]),
    ("getEphemerals", &[103]),
    ("getAllChildrenNumber", &[104]),
    ("addWatch", &[106]),
    ("whoAmI", &[107]),
    ("closeSession", &[-11]),
];

/// Returns the name of a request of ZooKeeper by its number.
pub(super) fn zk_request(number: i32) -> Option<&'static str> {
    let request = ZK.iter().find(|(_, numbers)| numbers.contains(&number));
    request.map(|(name, _)| *name)
}

/// Commands of Redis that locks are made of.
const RESP: &str = "\
    SET SETNX SETEX PSETEX GET GETSET GETDEL GETEX MGET MSET MSETNX \
    DEL UNLINK DELIFEQ DELEX EXISTS EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST TTL PTTL TYPE RENAME RENAMENX \
    EVAL EVALSHA FCALL SCRIPT FUNCTION \
    MULTI EXEC DISCARD WATCH UNWATCH WAIT \
    INCR INCRBY DECR DECRBY APPEND \
    HSET HSETNX HGET HGETALL HDEL HEXISTS HINCRBY \
    LPUSH RPUSH LPOP RPOP BLPOP BRPOP BLMOVE BRPOPLPUSH LREM LRANGE LLEN \
    SADD SREM SISMEMBER SMEMBERS \
    ZADD ZREM ZRANGE ZRANK ZSCORE ZREMRANGEBYSCORE ZRANGEBYSCORE \
    XADD XREAD XREADGROUP \
    SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE PUBLISH \
    HELLO AUTH CLIENT SELECT PING ECHO TIME INFO ROLE KEYS SCAN";

/// Methods of etcd's services.
const GRPC: &str = "\
    Range Put DeleteRange Txn Compact Watch \
    LeaseGrant LeaseRevoke LeaseKeepAlive LeaseTimeToLive LeaseLeases \
    Lock Unlock Campaign Proclaim Leader Observe Resign \
    MemberList Status Authenticate";

/// The first words of PostgreSQL's statements, and the advisory locks that are taken and given back in a `SELECT`.
const POSTGRES: &str = "\
    SELECT INSERT UPDATE DELETE MERGE WITH \
    BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT \
    LOCK LISTEN UNLISTEN NOTIFY \
    SET SHOW RESET DISCARD \
    CREATE DROP ALTER TRUNCATE \
    DO CALL COPY EXECUTE \
    advisory_lock try_advisory_lock advisory_unlock advisory_xact_lock try_advisory_xact_lock";

/// The first words of MySQL's statements, the functions of locks that are called in a `SELECT` or `DO`, and other commands.
const MYSQL: &str = "\
    SELECT INSERT UPDATE DELETE REPLACE WITH \
    BEGIN START COMMIT ROLLBACK SAVEPOINT \
    LOCK UNLOCK SET SHOW USE DO CALL \
    CREATE DROP ALTER TRUNCATE \
    KILL PREPARE EXECUTE \
    GET_LOCK RELEASE_LOCK RELEASE_ALL_LOCKS IS_FREE_LOCK IS_USED_LOCK \
    PING CHANGE_USER RESET_CONNECTION";

/// Messages that clients of NATS publish, by their effect on a key, and their requests to JetStream.
const NATS: &str = "\
    create update put delete purge remove read watch unwatch \
    next ack \
    stream_create stream_info api publish ping";

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Protocol; 6] = [
        Protocol::Zk,
        Protocol::Resp,
        Protocol::Grpc,
        Protocol::Postgres,
        Protocol::Mysql,
        Protocol::Nats,
    ];

    #[test]
    fn every_name_means_at_least_itself_and_capitals_do_not_matter() {
        for protocol in ALL {
            for name in protocol.names() {
                let spoken = protocol.spoken(&name.to_lowercase()).unwrap();
                assert!(spoken.means(&MessageName::new(name.as_bytes())), "{name}");
                assert_eq!(spoken.name(), name);
            }
            assert!(protocol.spoken("nonsense").is_none());
        }
    }

    #[test]
    fn a_step_is_named_however_a_library_spells_it() {
        let means = |name: &str, wire: &[u8]| Protocol::Resp.spoken(name).unwrap().means(&MessageName::new(wire));
        assert!(means("EXPIRE", b"PEXPIRE") && means("EVAL", b"EVALSHA") && means("SET", b"SETNX"));
        assert!(means("DEL", b"DELIFEQ") && means("DEL", b"DELEX") && !means("DELIFEQ", b"DEL"));
        assert!(!means("PEXPIRE", b"EXPIRE") && !means("SET", b"GETSET"));
        let seen = MessageKind::exactly(MessageName::new(b"SET"));
        assert!(seen.means(&MessageName::new(b"SET")) && !seen.means(&MessageName::new(b"SETNX")));
    }

    #[test]
    fn no_number_of_zookeeper_stands_for_two_requests() {
        let mut numbers: Vec<i32> = ZK.iter().flat_map(|(_, numbers)| *numbers).copied().collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }
}
