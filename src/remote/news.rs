//! What front-ends send each other: which keys have changed, which ones they ask each other to leave to them,
//! and messages of PUBLISH.
//!
//! The store passes it on, each thing at most once: what is sent while a connection is lost, is lost. So
//! a front-end also looks whether the keys have changed for which clients wait. And wherever news may have
//! been lost, clients that keep copies of keys get an invalidation of all keys ([`News::Flushed`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::row::{Key, Row};
#[cfg(feature = "postgres")]
use super::seal::Seal;
use crate::keyspace::LostLock;
use crate::values::ABSENT_KIND;

/// How often each front-end says that it is there.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// A front-end that has not been heard of for so long is taken for gone.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Bytes of news that wait to be sent. Later ones are dropped.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Bytes that travel in one piece of text. PostgreSQL takes 8,000 as text, and each byte becomes two.
#[cfg(feature = "postgres")]
const PIECE_BYTES: usize = 3_900;

/// Numbers of letters for each millisecond.
#[cfg(feature = "postgres")]
const LETTERS_PER_MS: u64 = 1_000;
/// A letter that was sent so long ago is dropped: it was received then, or by a process that has ended.
#[cfg(feature = "postgres")]
const LETTER_AGE_MS_MAX: u64 = 60_000;

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A key has changed to this.
    Changed(Key, Became),
    /// A key has expired.
    Expired(Key),
    /// All keys of a database have gone, or of all databases.
    Flushed(Option<u32>),
    /// A published message.
    Message {
        /// The number of the kind of channel.
        kind: u8,
        /// The channel's name.
        channel: Box<[u8]>,
        /// The message's text.
        message: Box<[u8]>,
    },
    /// The front-end is there, and wants to know this.
    Here(Wants),
    /// The front-end tells that one from now on what it wants to know, and has told it nothing before.
    Tells(i64),
    /// The front-end asks the others to leave a key to it for a turn.
    Asks {
        /// The key that is to be left to it.
        key: Key,
        /// The kind of value that clients wait for there, or what else it is for.
        purpose: u8,
        /// Whether it has had its turn, or does not want it any more.
        is_over: bool,
    },
}

/// What a key has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Became {
    /// The kind of its value; [`ABSENT_KIND`] if it has none.
    pub kind: u8,
    /// The version of its row; 0 if it has no value.
    pub version: i64,
    /// When it expires, in milliseconds since 1970; `None` for never.
    pub expires_at_ms: Option<u64>,
}

impl Became {
    /// What it is as this row.
    pub(super) fn of(row: &Row) -> Became {
        let Some(live) = &row.live else {
            return Became { kind: ABSENT_KIND, version: 0, expires_at_ms: None };
        };
        Became { kind: live.kind, version: row.version, expires_at_ms: live.expires_at_ms }
    }
}

/// What a front-end wants to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Which keys have changed.
    pub keys: bool,
    /// Which keys have expired.
    pub expired: bool,
}

impl Wants {
    const KEYS: u8 = 1;
    const EXPIRED: u8 = 2;

    /// Whether `self` wants something that `other` did not.
    pub(super) fn more_than(self, before: Wants) -> bool {
        self.keys && !before.keys || self.expired && !before.expired
    }

    fn to_bits(self) -> u8 {
        let bit = |is_wanted: bool, bit: u8| if is_wanted { bit } else { 0 };
        bit(self.keys, Wants::KEYS) | bit(self.expired, Wants::EXPIRED)
    }

    fn from_bits(bits: u8) -> Wants {
        Wants { keys: bits & Wants::KEYS != 0, expired: bits & Wants::EXPIRED != 0 }
    }
}

/// The news that wait to be sent, and the front-ends that receive them.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    waiting: Mutex<Waiting>,
    /// Wakes the connection that sends it.
    pub(super) work: Notify,
    others: Mutex<HashMap<i64, Other>>,
    /// Whether another front-end is there.
    has_others: AtomicBool,
    /// What at least one of them wants to know, as bits.
    wanted: AtomicU8,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Whether news were dropped, since there was no room.
    has_lost: bool,
}

/// What is new about another front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "etcd itself sends the changes of keys"))]
pub(super) struct Heard {
    /// It was not known.
    pub(super) is_new: bool,
    /// It wants to know of changes, and did not before: no change was told to it.
    pub(super) wants_more: bool,
}

#[derive(Debug)]
struct Other {
    heard: Instant,
    wants: Wants,
}

impl Outgoing {
    /// What other front-ends want to know.
    pub(super) fn wanted(&self) -> Wants {
        Wants::from_bits(self.wanted.load(Ordering::Relaxed))
    }

    /// Sends news soon, if another front-end is there.
    pub(super) fn tell(&self, news: &News) {
        let is_greeting = matches!(news, News::Here(_));
        if !is_greeting && !self.has_others.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.waiting.lock();
        match waiting.bytes.len() < WAITING_BYTES_MAX {
            true => news.write(&mut waiting.bytes),
            false => waiting.has_lost = true,
        }
        drop(waiting);
        self.work.notify_one();
    }

    /// Takes all news that wait.
    pub(super) fn take(&self) -> Vec<u8> {
        let Waiting { mut bytes, has_lost } = std::mem::take(&mut *self.waiting.lock());
        if has_lost {
            News::Flushed(None).write(&mut bytes);
        }
        bytes
    }

    /// Notes that another front-end is there. Returns what is new about it.
    pub(super) fn hear(&self, front: i64, wants: Wants) -> Heard {
        let mut others = self.others.lock();
        let before = others.insert(front, Other { heard: Instant::now(), wants });
        self.sum_up(&mut others);
        let wanted = before.as_ref().map_or(Wants::default(), |before| before.wants);
        Heard { is_new: before.is_none(), wants_more: wants.more_than(wanted) }
    }

    /// Whether a front-end is there.
    pub(super) fn knows(&self, front: i64) -> bool {
        self.others.lock().contains_key(&front)
    }

    /// Forgets front-ends that have gone.
    pub(super) fn tidy(&self) {
        self.sum_up(&mut self.others.lock());
    }

    fn sum_up(&self, others: &mut HashMap<i64, Other>) {
        others.retain(|_, other| other.heard.elapsed() < SILENCE_MAX);
        self.has_others.store(!others.is_empty(), Ordering::Relaxed);
        let wanted = others.values().fold(0, |bits, other| bits | other.wants.to_bits());
        self.wanted.store(wanted, Ordering::Relaxed);
    }
}

impl News {
    /// A message on a channel of this kind.
    pub fn message(kind: u8, channel: &[u8], message: &[u8]) -> News {
        News::Message { kind, channel: channel.into(), message: message.into() }
    }

    const CHANGED: u8 = 1;
    const FLUSHED: u8 = 2;
    const MESSAGE: u8 = 3;
    const HERE: u8 = 4;
    const EXPIRED: u8 = 5;
    const TELLS: u8 = 6;
    const ASKS: u8 = 7;

    fn write(&self, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &[u8]| {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text);
        };
        match self {
            News::Changed(key, Became { kind, version, expires_at_ms }) => {
                out.extend_from_slice(&[News::CHANGED, *kind]);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&expires_at_ms.unwrap_or(u64::MAX).to_le_bytes());
                out.extend_from_slice(&key.database.to_le_bytes());
                text(out, &key.name);
            }
            News::Expired(key) => {
                out.push(News::EXPIRED);
                out.extend_from_slice(&key.database.to_le_bytes());
                text(out, &key.name);
            }
            News::Flushed(database) => {
                out.push(News::FLUSHED);
                out.extend_from_slice(&database.unwrap_or(u32::MAX).to_le_bytes());
            }
            News::Message { kind, channel, message } => {
                out.extend_from_slice(&[News::MESSAGE, *kind]);
                text(out, channel);
                text(out, message);
            }
            News::Here(wants) => out.extend_from_slice(&[News::HERE, wants.to_bits()]),
            News::Tells(front) => {
                out.push(News::TELLS);
                out.extend_from_slice(&front.to_le_bytes());
            }
            News::Asks { key, purpose, is_over } => {
                out.extend_from_slice(&[News::ASKS, *purpose, u8::from(*is_over)]);
                out.extend_from_slice(&key.database.to_le_bytes());
                text(out, &key.name);
            }
        }
    }

    /// Reads everything that was written; `None` if it was not written here.
    pub(super) fn read_all(mut bytes: &[u8]) -> Option<Vec<News>> {
        let mut all = Vec::new();
        while let Some((tag, rest)) = bytes.split_first() {
            let mut rest = rest;
            all.push(match *tag {
                News::CHANGED => {
                    let kind = byte(&mut rest)?;
                    let version = i64::from_le_bytes(eight(&mut rest)?);
                    let expires_at_ms = u64::from_le_bytes(eight(&mut rest)?);
                    let expires_at_ms = Some(expires_at_ms).filter(|moment_ms| *moment_ms != u64::MAX);
                    News::Changed(key(&mut rest)?, Became { kind, version, expires_at_ms })
                }
                News::EXPIRED => News::Expired(key(&mut rest)?),
                News::FLUSHED => {
                    let database = number(&mut rest)?;
                    News::Flushed((database != u32::MAX).then_some(database))
                }
                News::MESSAGE => {
                    let kind = byte(&mut rest)?;
                    let channel = text(&mut rest)?.into();
                    News::Message { kind, channel, message: text(&mut rest)?.into() }
                }
                News::HERE => News::Here(Wants::from_bits(byte(&mut rest)?)),
                News::TELLS => News::Tells(i64::from_le_bytes(eight(&mut rest)?)),
                News::ASKS => {
                    let (purpose, is_over) = (byte(&mut rest)?, byte(&mut rest)? != 0);
                    News::Asks { key: key(&mut rest)?, purpose, is_over }
                }
                _ => return None,
            });
            bytes = rest;
        }
        Some(all)
    }
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn eight(bytes: &mut &[u8]) -> Option<[u8; 8]> {
    let (eight, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*eight)
}

fn key(bytes: &mut &[u8]) -> Option<Key> {
    let database = number(bytes)?;
    Some(Key { database, name: text(bytes)?.into() })
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

fn text<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = number(bytes)? as usize;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text)
}

/// The number of the next letter behind `last`, at this time of the store in milliseconds since 1970. So the
/// number says about when it was sent.
#[cfg(feature = "postgres")]
pub(super) fn next_letter(last: u64, now_ms: u64) -> u64 {
    (last + 1).max(now_ms * LETTERS_PER_MS)
}

/// Cuts news into pieces of text: the front-end, the letter's number, whether more follows, the bytes in
/// hexadecimal, and the seal of all that.
#[cfg(feature = "postgres")]
pub(super) fn cut(front: i64, letter: u64, bytes: &[u8], seal: &Seal) -> Vec<String> {
    let pieces = bytes.chunks(PIECE_BYTES);
    let last = pieces.len().saturating_sub(1);
    let text = |piece: &[u8]| piece.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    pieces
        .enumerate()
        .map(|(index, piece)| {
            let piece = format!("{front} {letter} {} {}", u8::from(index < last), text(piece));
            format!("{piece} {}", seal.of(index as u64, &piece))
        })
        .collect()
}

/// Puts the pieces of others' news together again.
#[derive(Debug, Default)]
pub(super) struct Incoming(HashMap<i64, Letter>);

/// The last letter of a front-end.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "etcd keeps pieces in their order"))]
struct Letter {
    number: u64,
    /// How many of its pieces have arrived.
    pieces: u64,
    bytes: Vec<u8>,
    is_complete: bool,
}

impl Letter {
    /// A letter of which nothing has arrived.
    fn new(number: u64) -> Letter {
        Letter { number, ..Letter::default() }
    }
}

impl Incoming {
    /// Adds a piece of text, at this time of the store in milliseconds since 1970. Returns whose news are
    /// complete, and the news. What no front-end has sent is dropped, and what was sent before.
    #[cfg(feature = "postgres")]
    pub(super) fn add(&mut self, piece: &str, seal: &Seal, now_ms: u64) -> Option<(i64, Vec<News>)> {
        let (piece, its_seal) = piece.rsplit_once(' ')?;
        let mut parts = piece.split(' ');
        let front: i64 = parts.next()?.parse().ok()?;
        let number: u64 = parts.next()?.parse().ok()?;
        let has_more = parts.next()? == "1";
        let text = parts.next()?.as_bytes();
        let known = self.0.get(&front);
        let place = known.filter(|known| known.number == number).map_or(0, |known| known.pieces);
        if !seal.is_right(place, piece, its_seal) {
            return None;
        }
        let is_old = |number: u64| number / LETTERS_PER_MS + LETTER_AGE_MS_MAX < now_ms;
        let was_there =
            known.is_some_and(|known| number < known.number || number == known.number && known.is_complete);
        if is_old(number) || was_there {
            return None;
        }
        if known.is_none() {
            // Letters of front-ends that have gone are too old to be sent again.
            self.0.retain(|_, known| !is_old(known.number));
        }
        let begun = self.0.entry(front).or_default();
        if begun.number != number {
            // If the last letter is not complete, a piece of it was lost.
            *begun = Letter::new(number);
        }
        begun.pieces += 1;
        for digits in text.chunks(2) {
            let digits = std::str::from_utf8(digits).ok()?;
            begun.bytes.push(u8::from_str_radix(digits, 16).ok()?);
        }
        Some((front, self.complete(front, has_more)?))
    }

    /// Adds a piece that is not text. Returns the news if they are complete.
    #[cfg(feature = "etcd")]
    pub(super) fn add_bytes(
        &mut self,
        front: i64,
        letter: u64,
        has_more: bool,
        bytes: &[u8],
    ) -> Option<Vec<News>> {
        let begun = self.0.entry(front).or_default();
        if begun.number != letter || begun.is_complete {
            // If the last letter is not complete, a piece of it was lost.
            *begun = Letter::new(letter);
        }
        begun.bytes.extend_from_slice(bytes);
        self.complete(front, has_more)
    }

    fn complete(&mut self, front: i64, has_more: bool) -> Option<Vec<News>> {
        let letter = self.0.get_mut(&front)?;
        if has_more && letter.bytes.len() < 2 * WAITING_BYTES_MAX {
            return None;
        }
        letter.is_complete = true;
        News::read_all(&std::mem::take(&mut letter.bytes))
    }
}

/// What a front-end does with the news of others.
pub(crate) trait Ears: Send + Sync + 'static {
    /// Hears what has happened elsewhere.
    fn hear(&self, news: News);

    /// Hears that a client has lost a lock in the store.
    fn hear_lost(&self, lost: &LostLock);

    /// Whether its clients want to know which keys change, beside clients that wait for keys.
    fn wants_keys(&self) -> bool;

    /// Whether its clients want to know which keys expire.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "etcd itself sends which keys expire"))]
    fn wants_expired(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "postgres")]
    fn news_arrive_as_they_were_sent_in_any_number_of_pieces() {
        let all = [
            News::Changed(
                Key::new(3, b"k\0\xff"),
                Became { kind: 1, version: 1 << 50, expires_at_ms: Some(7) },
            ),
            News::Changed(Key::new(3, b""), Became::of(&Row::default())),
            News::Message { kind: 1, channel: b"c".as_slice().into(), message: vec![b'm'; 20_000].into() },
            News::Flushed(None),
            News::Flushed(Some(2)),
            News::Here(Wants { keys: true, expired: false }),
            News::Expired(Key::new(0, b"lock")),
            News::Tells(i64::MAX - 3),
            News::Asks { key: Key::new(2, b"queue"), purpose: 3, is_over: false },
            News::Asks { key: Key::new(2, b""), purpose: 3, is_over: true },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|news| news.write(&mut bytes));
        let (seal, mut letter) = (Seal::new(b"secret"), next_letter(0, 5));
        let pieces = cut(7, letter, &bytes, &seal);
        assert!(pieces.len() == 6 && pieces.iter().all(|piece| piece.len() < 8_000));
        let mut incoming = Incoming::default();
        let mut add = |piece: &str| incoming.add(piece, &seal, 5);
        let (last, first) = pieces.split_last().unwrap();
        assert!(first.iter().all(|piece| add(piece).is_none()));
        assert!(add(&pieces[0]).is_none() && add(&pieces[2]).is_none(), "they were there");
        assert_eq!(add(last), Some((7, all.to_vec())));
        assert!(pieces.iter().all(|piece| add(piece).is_none()), "it was received");
        let here = |letter, seal: &Seal| cut(7, letter, &[News::HERE, 0], seal).remove(0);
        letter = next_letter(letter, 5);
        let greeting = here(letter, &seal);
        assert_eq!(add(&greeting), Some((7, vec![News::Here(Wants::default())])));
        assert!(add(&greeting).is_none() && add(&here(letter - 1, &seal)).is_none());
        assert!(add(&here(letter + 1, &Seal::new(b"guess"))).is_none(), "strangers do not know the secret");
        for wrong in ["7 6000 0 zz", "", "7 6001 0 0400", " ", "7"] {
            let sealed = format!("{wrong} {}", seal.of(0, wrong));
            assert!(add(wrong).is_none() && (wrong.ends_with("0400") || add(&sealed).is_none()), "{wrong}");
        }
        assert!(add(&here(next_letter(0, 5), &seal)).is_none(), "it is older than another one");
        let late = LETTER_AGE_MS_MAX + 6;
        assert!(Incoming::default().add(&greeting, &seal, late).is_none(), "it was sent long ago");
        assert!(Incoming::default().add(&greeting, &seal, late - 1).is_some());
    }

    #[test]
    fn changed_keys_are_sent_while_another_front_end_wants_them() {
        let outgoing = Outgoing::default();
        outgoing.tell(&News::Flushed(None));
        assert!(outgoing.take().is_empty() && !outgoing.wanted().keys);
        let wants = Wants { keys: true, expired: false };
        let heard = |is_new, wants_more| Heard { is_new, wants_more };
        assert_eq!(outgoing.hear(2, Wants::default()), heard(true, false));
        assert_eq!(outgoing.hear(2, wants), heard(false, true));
        assert_eq!(outgoing.hear(2, wants), heard(false, false));
        outgoing.tell(&News::Flushed(None));
        assert!(!outgoing.take().is_empty() && outgoing.wanted() == wants);
        outgoing.waiting.lock().bytes.resize(WAITING_BYTES_MAX, 0);
        outgoing.tell(&News::Expired(Key::new(0, b"lost")));
        assert_eq!(outgoing.take().split_off(WAITING_BYTES_MAX), [&[News::FLUSHED][..], &[255; 4]].concat());
        outgoing.others.lock().values_mut().for_each(|other| other.heard -= SILENCE_MAX);
        outgoing.tidy();
        assert!(!outgoing.wanted().keys);
    }
}
