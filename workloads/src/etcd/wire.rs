//! The messages of etcd's own API, as far as locks need them: fields that nothing here reads or writes are left out.
//!
//! Names and numbers: <https://github.com/etcd-io/etcd/tree/main/api> and
//! <https://github.com/etcd-io/etcd/tree/main/server/etcdserver/api>, in `rpc.proto`, `kv.proto`, `auth.proto`, `v3lock.proto` and
//! `v3election.proto`. One of several fields (`oneof`) is an optional field of its own, and an enumeration is a number.

/// Declares messages: the kind and the number of each field.
macro_rules! messages {
    ($($name:ident { $($fields:tt)* })+) => {
        $(messages!(@ $name [] $($fields)*);)+
    };
    (@ $name:ident [$($read:tt)*]) => {
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct $name {
            $($read)*
        }
    };
    (@ $name:ident [$($read:tt)*] $field:ident: bool = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(bool, tag = $tag)] pub $field: bool,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: int32 = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(int32, tag = $tag)] pub $field: i32,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: int64 = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(int64, tag = $tag)] pub $field: i64,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: optional int64 = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(int64, optional, tag = $tag)] pub $field: Option<i64>,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: uint64 = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(uint64, tag = $tag)] pub $field: u64,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: bytes = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(bytes, tag = $tag)] pub $field: Vec<u8>,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: string = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(string, tag = $tag)] pub $field: String,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: repeated string = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(string, repeated, tag = $tag)] pub $field: Vec<String>,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: message $of:ident = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(message, optional, tag = $tag)] pub $field: Option<$of>,] $($rest)*);
    };
    (@ $name:ident [$($read:tt)*] $field:ident: repeated message $of:ident = $tag:tt; $($rest:tt)*) => {
        messages!(@ $name [$($read)* #[prost(message, repeated, tag = $tag)] pub $field: Vec<$of>,] $($rest)*);
    };
}

/// The order of a range: ascending.
pub const SORT_ASCENDING: i32 = 1;
/// By the revisions at which keys were created.
pub const SORT_BY_CREATION: i32 = 2;
/// A comparison with the revision at which a key was created.
pub const COMPARE_CREATION: i32 = 1;
/// A comparison with the lease of a key.
pub const COMPARE_LEASE: i32 = 4;
/// The event of a deleted key.
pub const EVENT_DELETED: i32 = 1;
/// The permission to read and write.
pub const READ_WRITE: i32 = 2;

messages! {
    ResponseHeader { revision: int64 = 3; }
    KeyValue {
        key: bytes = 1;
        create_revision: int64 = 2;
        mod_revision: int64 = 3;
        value: bytes = 5;
        lease: int64 = 6;
    }
    RangeRequest {
        key: bytes = 1;
        range_end: bytes = 2;
        limit: int64 = 3;
        sort_order: int32 = 5;
        sort_target: int32 = 6;
        keys_only: bool = 8;
        count_only: bool = 9;
    }
    RangeResponse {
        header: message ResponseHeader = 1;
        kvs: repeated message KeyValue = 2;
        more: bool = 3;
        count: int64 = 4;
    }
    PutRequest { key: bytes = 1; value: bytes = 2; lease: int64 = 3; }
    DeleteRangeRequest { key: bytes = 1; range_end: bytes = 2; }
    DeleteRangeResponse { deleted: int64 = 2; }

    // one of them
    RequestOp {
        range: message RangeRequest = 1;
        put: message PutRequest = 2;
        delete_range: message DeleteRangeRequest = 3;
    }
    ResponseOp { range: message RangeResponse = 1; }
    Compare {
        target: int32 = 2;
        key: bytes = 3;
        // one of them
        create_revision: optional int64 = 5;
        lease: optional int64 = 8;
    }
    TxnRequest {
        compare: repeated message Compare = 1;
        success: repeated message RequestOp = 2;
        failure: repeated message RequestOp = 3;
    }
    TxnResponse {
        header: message ResponseHeader = 1;
        succeeded: bool = 2;
        responses: repeated message ResponseOp = 3;
    }

    LeaseGrantRequest { ttl: int64 = 1; }
    LeaseGrantResponse { id: int64 = 2; ttl: int64 = 3; }
    LeaseRevokeRequest { id: int64 = 1; }
    LeaseKeepAliveRequest { id: int64 = 1; }
    LeaseKeepAliveResponse { ttl: int64 = 3; }
    LeaseTimeToLiveRequest { id: int64 = 1; }
    LeaseTimeToLiveResponse { ttl: int64 = 3; }

    WatchRequest { create_request: message WatchCreateRequest = 1; }
    WatchCreateRequest { key: bytes = 1; range_end: bytes = 2; start_revision: int64 = 3; }
    WatchResponse {
        canceled: bool = 4;
        compact_revision: int64 = 5;
        cancel_reason: string = 6;
        events: repeated message WatchEvent = 11;
    }
    // `mvccpb.Event`
    WatchEvent { kind: int32 = 1; kv: message KeyValue = 2; }

    StatusRequest {}
    StatusResponse { header: message ResponseHeader = 1; leader: uint64 = 4; }
    // the name is empty until it has started
    Member { id: uint64 = 1; name: string = 2; peer_urls: repeated string = 3; is_learner: bool = 5; }
    MemberAddRequest { peer_urls: repeated string = 1; }
    MemberRemoveRequest { id: uint64 = 1; }
    MemberListRequest {}
    MemberListResponse { members: repeated message Member = 2; }

    Permission { perm_type: int32 = 1; key: bytes = 2; range_end: bytes = 3; }
    AuthEnableRequest {}
    AuthenticateRequest { name: string = 1; password: string = 2; }
    AuthenticateResponse { token: string = 2; }
    AuthUserAddRequest { name: string = 1; password: string = 2; }
    AuthUserGrantRoleRequest { user: string = 1; role: string = 2; }
    AuthRoleAddRequest { name: string = 1; }
    AuthRoleGrantPermissionRequest { name: string = 1; perm: message Permission = 2; }

    LockRequest { name: bytes = 1; lease: int64 = 2; }
    LockResponse { key: bytes = 2; }
    UnlockRequest { key: bytes = 1; }

    CampaignRequest { name: bytes = 1; lease: int64 = 2; value: bytes = 3; }
    CampaignResponse { leader: message LeaderKey = 2; }
    LeaderKey { name: bytes = 1; key: bytes = 2; rev: int64 = 3; lease: int64 = 4; }
    ResignRequest { leader: message LeaderKey = 1; }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn the_revision_of_an_absent_key_is_sent_and_no_other_zero() {
        let absent = Compare {
            target: COMPARE_CREATION,
            key: b"k".to_vec(),
            create_revision: Some(0),
            lease: None,
        };
        assert_eq!(absent.encode_to_vec(), [0x10, 1, 0x1a, 1, b'k', 0x28, 0]);
        assert!(LeaseGrantRequest::default().encode_to_vec().is_empty());
    }
}
