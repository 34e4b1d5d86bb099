//! The messages of etcd's protocol (version 3) that are used here, with the fields that are used. Their
//! numbers are those of etcd's `rpc.proto` and `kv.proto`.
//!
//! They are written by hand: they are few, and so the build needs no program that generates code.

use std::fmt;

use prost::bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// The head of each response.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    /// The number of the last change of any key.
    #[prost(int64, tag = 3)]
    pub(super) revision: i64,
}

/// A key as etcd has it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = 1)]
    pub(super) key: Bytes,
    #[prost(int64, tag = 2)]
    pub(super) create_revision: i64,
    #[prost(int64, tag = 3)]
    pub(super) mod_revision: i64,
    #[prost(bytes = "bytes", tag = 5)]
    pub(super) value: Bytes,
    #[prost(int64, tag = 6)]
    pub(super) lease: i64,
}

/// A login: user and password.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = 1)]
    pub(super) name: String,
    #[prost(string, tag = 2)]
    pub(super) password: String,
}

/// Without the password: it may be logged.
impl fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct AuthenticateResponse {
    /// The token that each later call sends.
    #[prost(string, tag = 2)]
    pub(super) token: String,
}

/// Without the token.
impl fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").finish_non_exhaustive()
    }
}

/// Reads keys. It is linearizable: `serializable`, number 7, is left out.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = 1)]
    pub(super) key: Bytes,
    /// The first key that is not read; empty for one key alone.
    #[prost(bytes = "bytes", tag = 2)]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = 3)]
    pub(super) limit: i64,
    /// The revision at which keys are read; 0 for the last one.
    #[prost(int64, tag = 4)]
    pub(super) revision: i64,
    #[prost(bool, tag = 8)]
    pub(super) keys_only: bool,
    #[prost(bool, tag = 9)]
    pub(super) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = 1)]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = 2)]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = 3)]
    pub(super) more: bool,
    #[prost(int64, tag = 4)]
    pub(super) count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = 1)]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = 2)]
    pub(super) value: Bytes,
    /// The lease with which the key ends; 0 for none.
    #[prost(int64, tag = 3)]
    pub(super) lease: i64,
    /// Whether the key keeps the lease that it has. It must exist then.
    #[prost(bool, tag = 6)]
    pub(super) ignore_lease: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutResponse {
    #[prost(message, optional, tag = 1)]
    pub(super) header: Option<Header>,
}

/// Deletes a key, or a range of keys.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = 1)]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = 2)]
    pub(super) range_end: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeResponse {
    #[prost(int64, tag = 2)]
    pub(super) deleted: i64,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3, 4")]
    pub(super) request: Option<Operation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operation {
    #[prost(message, tag = 1)]
    Range(RangeRequest),
    #[prost(message, tag = 2)]
    Put(PutRequest),
    #[prost(message, tag = 3)]
    DeleteRange(DeleteRangeRequest),
    #[prost(message, tag = 4)]
    Txn(TxnRequest),
}

/// The result of one operation.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "OperationResponse", tags = "1, 2, 3, 4")]
    pub(super) response: Option<OperationResponse>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OperationResponse {
    #[prost(message, tag = 1)]
    Range(RangeResponse),
    #[prost(message, tag = 2)]
    Put(PutResponse),
    #[prost(message, tag = 3)]
    DeleteRange(DeleteRangeResponse),
    #[prost(message, tag = 4)]
    Txn(TxnResponse),
}

/// A condition of a transaction on one key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "Comparison", tag = 1)]
    pub(super) result: i32,
    #[prost(enumeration = "Compared", tag = 2)]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = 3)]
    pub(super) key: Bytes,
    #[prost(oneof = "Operand", tags = "5, 6, 7")]
    pub(super) operand: Option<Operand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum Comparison {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

/// The part of a key that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum Compared {
    Version = 0,
    /// The revision in which the key was made; 0 for one that is absent.
    Create = 1,
    /// The revision in which it was written last; 0 for one that is absent.
    Mod = 2,
    /// Its value. A key that is absent fulfils no condition.
    Value = 3,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Operand {
    #[prost(int64, tag = 5)]
    Create(i64),
    #[prost(int64, tag = 6)]
    Mod(i64),
    #[prost(bytes = "bytes", tag = 7)]
    Value(Bytes),
}

/// Does the first operations if all conditions are fulfilled, and the second ones otherwise. Conditions of
/// all transactions within it are looked at before anything is done.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = 1)]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = 2)]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = 3)]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = 1)]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = 2)]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = 3)]
    pub(super) responses: Vec<ResponseOp>,
}

/// Makes a lease. etcd chooses its number.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    /// In seconds. etcd makes it as long as its election takes, at least.
    #[prost(int64, tag = 1)]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = 2)]
    pub(super) id: i64,
}

/// Has a lease begin anew.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = 1)]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = 2)]
    pub(super) id: i64,
    /// 0 if there is no such lease any more.
    #[prost(int64, tag = 3)]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "Watching", tags = "1")]
    pub(super) request: Option<Watching>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Watching {
    #[prost(message, tag = 1)]
    Create(WatchCreateRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = 1)]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = 2)]
    pub(super) range_end: Bytes,
    /// The first revision that the watch returns; 0 for the next one.
    #[prost(int64, tag = 3)]
    pub(super) start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(bool, tag = 3)]
    pub(super) created: bool,
    #[prost(bool, tag = 4)]
    pub(super) canceled: bool,
    #[prost(string, tag = 6)]
    pub(super) cancel_reason: String,
    /// In the order of their revisions. All events of one revision come together.
    #[prost(message, repeated, tag = 11)]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0 for a key that was written, 1 for one that has gone.
    #[prost(int32, tag = 1)]
    pub(super) kind: i32,
    #[prost(message, optional, tag = 2)]
    pub(super) kv: Option<KeyValue>,
}

impl Event {
    /// The kind of a key that has gone.
    pub(super) const GONE: i32 = 1;
}

/// Reads one key.
pub(super) fn range(key: Bytes) -> RequestOp {
    RequestOp { request: Some(Operation::Range(RangeRequest { key, ..RangeRequest::default() })) }
}

/// Reads one key as it was.
pub(super) fn range_at(key: Bytes, revision: i64) -> RequestOp {
    let request = RangeRequest { key, revision, ..RangeRequest::default() };
    RequestOp { request: Some(Operation::Range(request)) }
}

/// Writes a key, with a lease or without.
pub(super) fn put(key: Bytes, value: Bytes, lease: i64) -> RequestOp {
    let request = PutRequest { key, value, lease, ignore_lease: false };
    RequestOp { request: Some(Operation::Put(request)) }
}

/// Deletes one key.
pub(super) fn delete(key: Bytes) -> RequestOp {
    let request = DeleteRangeRequest { key, range_end: Bytes::new() };
    RequestOp { request: Some(Operation::DeleteRange(request)) }
}

/// A transaction within one.
pub(super) fn nested(txn: TxnRequest) -> RequestOp {
    RequestOp { request: Some(Operation::Txn(txn)) }
}

/// That a key is absent.
pub(super) fn is_absent(key: Bytes) -> Compare {
    condition(Comparison::Equal, Compared::Create, key, Operand::Create(0))
}

/// That a key was written last in this revision.
pub(super) fn is_of(key: Bytes, revision: i64) -> Compare {
    condition(Comparison::Equal, Compared::Mod, key, Operand::Mod(revision))
}

/// That a key is there, and its value is less.
pub(super) fn is_less(key: Bytes, value: Bytes) -> Compare {
    condition(Comparison::Less, Compared::Value, key, Operand::Value(value))
}

fn condition(result: Comparison, target: Compared, key: Bytes, operand: Operand) -> Compare {
    Compare { result: result.into(), target: target.into(), key, operand: Some(operand) }
}

impl ResponseOp {
    /// The key that was read alone, if it was there.
    pub(super) fn into_key(self) -> Option<KeyValue> {
        match self.response {
            Some(OperationResponse::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        }
    }

    /// What has come of a transaction within one.
    pub(super) fn into_txn(self) -> Option<TxnResponse> {
        match self.response {
            Some(OperationResponse::Txn(txn)) => Some(txn),
            _ => None,
        }
    }
}

impl TxnResponse {
    /// The revision after it.
    pub(super) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }
}
