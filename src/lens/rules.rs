//! The kinds of misuse of locks.
//!
//! The rules are hints: a key that SETNX has made may be a lock, or remember that something was done once.

/// A way in which locks go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// A lock without expiry whose holder has disconnected.
    NoExpiry,
    /// The expiry came in a second command.
    ExpirySetSeparately,
    /// A client deleted a lock that another holds.
    DeletedByAnother,
    /// A holder came back when its lock had expired.
    ExpiredWhileHeld,
    /// GETSET by a contender that lost has moved the winner's time stamp.
    TakeoverOverwritten,
    /// A holder released a lock that it had released before.
    ReleasedTwice,
    /// A client wrote its own token into a lock that another holds.
    OverwrittenByAnother,
    /// A client changed when a lock expires that another holds.
    ExtendedByAnother,
    /// A holder came back when its lock had been flushed or evicted.
    LostWhileHeld,
    /// A client deleted a lock whose holder had disconnected, and which no client had tried to take.
    ReleasedElsewhere,
    /// A release compared a token that no client is known to have taken the lock with, or tried to.
    ReleasedByStranger,
    /// Two connections have taken the lock with the same token.
    TokenNotUnique,
    /// A holder wrote something else over its token, and came back with the token.
    OverwrittenByHolder,
    /// Clients wait for each other's locks, all around.
    Deadlock,
    /// A client waits for a lock that it holds itself.
    WaitsForItself,
    /// Two clients take the same locks in different orders.
    LockOrderInversion,
    /// A holder renews its lock again and again, for far longer than the holders before needed it.
    RenewedTooLong,
}

impl Rule {
    /// All of them, in the order of their numbers.
    pub const ALL: [Rule; 17] = [
        Rule::NoExpiry,
        Rule::ExpirySetSeparately,
        Rule::DeletedByAnother,
        Rule::ExpiredWhileHeld,
        Rule::TakeoverOverwritten,
        Rule::ReleasedTwice,
        Rule::OverwrittenByAnother,
        Rule::ExtendedByAnother,
        Rule::LostWhileHeld,
        Rule::ReleasedElsewhere,
        Rule::ReleasedByStranger,
        Rule::TokenNotUnique,
        Rule::OverwrittenByHolder,
        Rule::Deadlock,
        Rule::WaitsForItself,
        Rule::LockOrderInversion,
        Rule::RenewedTooLong,
    ];

    /// Its name in LOCKS LOG, LOCKS STATS, INFO and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Rule::NoExpiry => "no-expiry",
            Rule::ExpirySetSeparately => "expiry-set-separately",
            Rule::DeletedByAnother => "deleted-by-another",
            Rule::ExpiredWhileHeld => "expired-while-held",
            Rule::TakeoverOverwritten => "takeover-overwritten",
            Rule::ReleasedTwice => "released-twice",
            Rule::OverwrittenByAnother => "overwritten-by-another",
            Rule::ExtendedByAnother => "extended-by-another",
            Rule::LostWhileHeld => "lost-while-held",
            Rule::ReleasedElsewhere => "released-elsewhere",
            Rule::ReleasedByStranger => "released-by-stranger",
            Rule::TokenNotUnique => "token-not-unique",
            Rule::OverwrittenByHolder => "overwritten-by-holder",
            Rule::Deadlock => "deadlock",
            Rule::WaitsForItself => "waits-for-itself",
            Rule::LockOrderInversion => "lock-order-inversion",
            Rule::RenewedTooLong => "renewed-too-long",
        }
    }

    /// The meaning for a user, if the key is a lock. `compares` says whether the client's command has
    /// compared the token.
    pub(super) fn hint(self, compares: bool) -> &'static str {
        match self {
            Rule::NoExpiry => {
                "If this is a lock, no client can take it any more: its holder has disconnected and it never \
                 expires."
            }
            Rule::ExpirySetSeparately => {
                "If this is a lock and its holder crashes between the two commands, the lock never expires."
            }
            Rule::DeletedByAnother => {
                "If this is a lock, a client that does not hold it has released it: the next client takes it \
                 while the holder still works."
            }
            Rule::ExpiredWhileHeld => {
                "If this is a lock, it expired while its holder still worked: another client may have held \
                 it at the same time."
            }
            Rule::TakeoverOverwritten => {
                "If this is a lock whose value is its expiry time, a client that failed to take it has \
                 replaced the holder's time with its own: the lock ends at the wrong time."
            }
            Rule::ReleasedTwice if compares => {
                "If this is a lock, its holder has released it twice. The second release compared the \
                 token, so it does no harm; but the holder may have worked on after the first one."
            }
            Rule::ReleasedTwice => {
                "If this is a lock, the second release would have deleted the next holder's lock."
            }
            Rule::OverwrittenByAnother => {
                "If this is a lock, a client that does not hold it has written its own token into it: both \
                 believe that they hold it, and the holder can neither extend nor release it."
            }
            Rule::ExtendedByAnother => {
                "If this is a lock, a client that does not hold it has changed when it expires: it may stay \
                 after its holder has gone, or end while its holder works."
            }
            Rule::LostWhileHeld => {
                "If this is a lock, it was lost while its holder still worked, because all keys were \
                 removed (FLUSHALL, FLUSHDB) or because memory was short: another client may have held it \
                 at the same time."
            }
            Rule::ReleasedElsewhere => {
                "If this is a lock, a client that did not take it has released it after its holder had \
                 disconnected. Some frameworks mean it: one process takes the lock, and another releases it."
            }
            Rule::ReleasedByStranger => {
                "If this is a lock, a client has tried to release it by a token with which no client has \
                 taken it, or tried to: the lock stays until it expires. A token may have been made \
                 anew for the release."
            }
            Rule::TokenNotUnique => {
                "If this is a lock, two connections have taken it with the same token: the comparison of a \
                 release does not keep one from releasing the lock of the other."
            }
            Rule::OverwrittenByHolder => {
                "If this is a lock, its holder has written something else under its key: the token has gone, \
                 so that the release does nothing, and the expiry may have gone with it."
            }
            Rule::Deadlock => {
                "Each of these clients holds a lock and waits for one that the next of them holds: none goes \
                 on until a wait times out, a lock expires, or a client leaves."
            }
            Rule::WaitsForItself => {
                "This client waits for a lock that it holds itself, by the same token: it goes on when its \
                 wait times out or the lock expires."
            }
            Rule::LockOrderInversion => {
                "These clients take the same two locks in different orders. If both are there at the same \
                 time, each with its first lock, they wait for each other for ever."
            }
            Rule::RenewedTooLong => {
                "Its holder renews this lock again and again, and others want it. The holders before were \
                 done within one lease: the work may hang while a thread or a timer renews the lock."
            }
        }
    }

    /// Whether it is about the lock of another client, which is worse than trouble with one's own.
    pub(super) fn is_about_another(self) -> bool {
        matches!(
            self,
            Rule::DeletedByAnother
                | Rule::OverwrittenByAnother
                | Rule::ExtendedByAnother
                | Rule::TakeoverOverwritten
                | Rule::Deadlock
        )
    }

    /// Its bit in a set of rules.
    pub(super) fn bit(self) -> u32 {
        1 << self as u16
    }
}
