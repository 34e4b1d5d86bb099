//! The errors of commands, in the words of Redis, which people search for.

use std::borrow::Cow;

use crate::glob::{REGISTERED_BYTES_MAX, TooLong};
use crate::keyspace::{HoldsSome, Missing, NotEverything};
use crate::resp::Request;
use crate::values::WrongType;

/// An error reply, from its code word on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Cow<'static, [u8]>);

impl Error {
    /// Options that contradict each other, or are none.
    pub const SYNTAX: Error = Error::fixed("ERR syntax error");
    /// A number that is none, or does not fit.
    pub const NOT_AN_INTEGER: Error = Error::fixed("ERR value is not an integer or out of range");
    /// A number that does not fit into 32 bits.
    pub const NOT_A_SHORT_INTEGER: Error =
        Error::fixed("ERR value is out of range, value must between -2147483648 and 2147483647");
    /// A number whose opposite is none of 64 bits.
    pub const HAS_NO_OPPOSITE: Error = Error::fixed(
        "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
    );
    /// A number that would not fit.
    pub const OVERFLOW: Error = Error::fixed("ERR increment or decrement would overflow");
    /// A number with a fraction that is none.
    pub const NOT_A_FLOAT: Error = Error::fixed("ERR value is not a valid float");
    /// A sum that is no number.
    pub const NOT_A_RESULT: Error = Error::fixed("ERR increment would produce NaN or Infinity");
    /// A digest that is none.
    pub const NOT_A_DIGEST: Error = Error::fixed("ERR must be exactly 16 hexadecimal characters");
    /// A type of BITFIELD that is none.
    pub const INVALID_BITFIELD_TYPE: Error = Error::fixed(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    );
    /// A string that would become too long.
    pub const STRING_TOO_LONG: Error =
        Error::fixed("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    /// Strings that are too long to be compared.
    pub const LCS_TOO_LONG: Error =
        Error::fixed("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
    /// There is no memory for looking for it.
    pub const LCS_NO_MEMORY: Error =
        Error::fixed("ERR Insufficient memory, failed allocating transient memory for LCS");
    /// A script has been running for too long.
    pub const BUSY: Error = Error::fixed(
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    );
    /// A function has been running for too long.
    pub const BUSY_FUNCTION: Error = Error::fixed(
        "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
    );
    /// A command that would change data of a replica.
    pub const READ_ONLY: Error = Error::fixed("READONLY You can't write against a read only replica.");
    /// A command while a snapshot or a log is being loaded.
    pub const LOADING: Error = Error::fixed("LOADING Redis is loading the dataset in memory");
    /// A script that the server does not know by this digest.
    pub const NO_SCRIPT: Error = Error::fixed("NOSCRIPT No matching script. Please use EVAL.");
    /// A replica that has lost its primary, and returns no old data.
    pub const MASTER_DOWN: Error =
        Error::fixed("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
    /// Several keys of a slot of which only some have moved to another node of a cluster.
    pub const TRY_AGAIN: Error = Error::fixed("TRYAGAIN Multiple keys request during rehashing of slot");
    /// A cluster of which a part is missing.
    pub const CLUSTER_DOWN: Error = Error::fixed("CLUSTERDOWN The cluster is down");
    /// A key that must be there and is not.
    pub const NO_SUCH_KEY: Error = Error::fixed("ERR no such key");
    /// A key that is to be moved or copied to itself.
    pub const SAME_OBJECT: Error = Error::fixed("ERR source and destination objects are the same");
    /// A database that there is not.
    pub const NO_SUCH_DATABASE: Error = Error::fixed("ERR DB index is out of range");
    /// A command that needs memory where there is none.
    pub const OUT_OF_MEMORY: Error = Error::fixed("OOM command not allowed when used memory > 'maxmemory'.");
    /// A command that writes where data could not be saved.
    pub const NOT_SAVED: Error = Error::fixed(
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. \
         Commands that may modify the data set are disabled, because this instance is configured to report \
         errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check \
         the Redis logs for details about the RDB error.",
    );
    /// A client that has to authenticate first.
    pub const NOT_AUTHENTICATED: Error = Error::fixed("NOAUTH Authentication required.");
    /// HELLO of such a client.
    pub const HELLO_NOT_AUTHENTICATED: Error = Error::fixed(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
         AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
         version at the same time",
    );
    /// AUTH that failed.
    pub const WRONG_PASSWORD: Error =
        Error::fixed("WRONGPASS invalid username-password pair or user is disabled.");
    /// AUTH where there is nothing to authenticate with.
    pub const NO_PASSWORD_SET: Error = Error::fixed(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
         configuration is correct?",
    );

    /// A key whose value is of another type than the command is for.
    pub const WRONG_TYPE: Error =
        Error::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// A command that needs all keys, in a transaction that holds some.
    pub const NOT_EVERYTHING: Error =
        Error::fixed("ERR This command needs all keys, which are not held here");
    /// A script that names a key late, in a transaction that may not come to hold it.
    pub const MISSING: Error =
        Error::fixed("ERR Script attempted to access a key that it has not declared, which is not held here");

    /// A client whose wait another client has ended.
    pub const UNBLOCKED: Error = Error::fixed("UNBLOCKED client unblocked via CLIENT UNBLOCK");

    /// A text that is known beforehand.
    pub const fn fixed(text: &'static str) -> Error {
        Error(Cow::Borrowed(text.as_bytes()))
    }

    /// A text that names something.
    pub fn text(text: impl Into<String>) -> Error {
        Error(Cow::Owned(text.into().into_bytes()))
    }

    /// A text of any bytes, from its code word on.
    pub fn bytes(text: Vec<u8>) -> Error {
        Error(Cow::Owned(text))
    }

    /// A text that quotes bytes of the client between two known parts, as C prints them: they end with their
    /// first NUL.
    pub fn quoting(before: &str, bytes: &[u8], after: &str) -> Error {
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Error(Cow::Owned([before.as_bytes(), bytes, after.as_bytes()].concat()))
    }

    /// A request that is too short or too long for its command.
    pub fn wrong_arity(command: &str) -> Error {
        Error::text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// A request with arguments that its subcommand does not take, although the arity allows them. Quotes at
    /// most 128 bytes, as Redis does.
    pub fn wrong_subcommand(request: Request<'_>) -> Error {
        const QUOTED_BYTES_MAX: usize = 128;
        let (name, subcommand) = (request.name().to_ascii_uppercase(), request.at(1));
        let after = format!("'. Try {} HELP.", String::from_utf8_lossy(&name));
        let before = "ERR unknown subcommand or wrong number of arguments for '";
        Error::quoting(before, &subcommand[..subcommand.len().min(QUOTED_BYTES_MAX)], &after)
    }

    /// Checks that a request is not longer than its subcommand allows, although its arity does.
    ///
    /// # Errors
    ///
    /// [`wrong_subcommand`](Self::wrong_subcommand)
    pub fn check_longest(request: Request<'_>, longest: usize) -> Result<(), Error> {
        if request.len() > longest { Err(Error::wrong_subcommand(request)) } else { Ok(()) }
    }

    /// An expiry that is not in the future, or too far in it.
    pub fn invalid_expire(command: &str) -> Error {
        Error::text(format!("ERR invalid expire time in '{command}' command"))
    }

    /// A command that there is not. Quotes at most 128 bytes of its name and of its arguments, as Redis does.
    pub fn unknown_command(request: Request<'_>) -> Error {
        const QUOTED_BYTES_MAX: usize = 128;
        let cut = |bytes: &[u8], length: usize| -> Vec<u8> { bytes[..bytes.len().min(length)].to_vec() };
        let mut text = b"ERR unknown command '".to_vec();
        text.extend(cut(request.name(), QUOTED_BYTES_MAX));
        text.push(b'\'');
        if request.len() == 1 {
            return Error(Cow::Owned(text));
        }
        text.extend(b", with args beginning with: ");
        let mut quoted = Vec::new();
        for argument in request.from(1) {
            if quoted.len() >= QUOTED_BYTES_MAX {
                break;
            }
            let room = QUOTED_BYTES_MAX - quoted.len();
            quoted.push(b'\'');
            quoted.extend(cut(argument, room));
            quoted.extend(b"' ");
        }
        text.extend(quoted);
        Error(Cow::Owned(text))
    }

    /// A subcommand that there is not.
    pub fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Error {
        const QUOTED_BYTES_MAX: usize = 128;
        let quoted = &subcommand[..subcommand.len().min(QUOTED_BYTES_MAX)];
        let after = format!("'. Try {} HELP.", command.to_ascii_uppercase());
        Error::quoting("ERR unknown subcommand '", quoted, &after)
    }

    /// The line as it is sent, without the leading `-`: a code word, a blank, a text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WRONG_TYPE
    }
}

impl From<TooLong> for Error {
    fn from(_: TooLong) -> Error {
        Error::text(format!("ERR a pattern may have at most {REGISTERED_BYTES_MAX} bytes"))
    }
}

impl From<NotEverything> for Error {
    fn from(_: NotEverything) -> Error {
        Error::NOT_EVERYTHING
    }
}

impl From<HoldsSome> for Error {
    fn from(_: HoldsSome) -> Error {
        Error::NOT_EVERYTHING
    }
}

impl From<Missing> for Error {
    fn from(_: Missing) -> Error {
        Error::MISSING
    }
}
