//! Channels: which clients listen to which, and messages on their way to them.
//!
//! A message is put into the mail of every subscriber at once, under the lock of the registry: all
//! subscribers of a channel see its messages in one order. A subscriber that does not take its mail is cut
//! off by `client-output-buffer-limit pubsub` and does not slow down others.
//!
//! What EXEC or a script publishes is sent once it has ended. Until then each message is a [`Letter`] to each
//! client that listens when it is published. The receiver's limits count a letter from the moment it is
//! written, as if it had been sent, and cut the receiver off when they are exceeded; it then gets no more
//! letters. So letters take no more memory than the mail that they will be, besides a fixed size for each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::clients::{Client, Leaving};
use crate::glob::Pattern;
use crate::resp::{Protocol, Reply, Sent};

/// How listeners name channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By their names (SUBSCRIBE).
    Channel,
    /// By patterns (PSUBSCRIBE).
    Pattern,
    /// By their names, in the space of names of sharded channels (SSUBSCRIBE).
    Shard,
}

/// All kinds, in the order in which a client is notified of the end of its subscriptions.
pub const KINDS: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];

/// A table that once had this number of names keeps room for them.
const NAMES_KEPT_MIN: usize = 1024;

/// All listeners, by channel or pattern.
#[derive(Debug, Default)]
pub struct PubSub {
    listeners: Mutex<[HashMap<Box<[u8]>, Listeners>; KINDS.len()]>,
}

/// The listeners of one channel or pattern.
#[derive(Debug)]
struct Listeners {
    /// By their numbers.
    clients: BTreeMap<u64, Arc<Client>>,
    /// The pattern, ready to be matched.
    pattern: Option<Box<Pattern<'static>>>,
}

/// The channels and patterns that one client listens to.
#[derive(Debug, Default)]
pub struct Subscriptions {
    names: [BTreeSet<Box<[u8]>>; KINDS.len()],
    total: usize,
    /// Bytes of the names, and of what is made of patterns.
    bytes: usize,
}

/// Bytes that a name takes. A pattern that is ready to be matched has up to four for each of its own.
fn bytes_of(kind: Kind, name: &[u8]) -> usize {
    if kind == Kind::Pattern { name.len() * 5 } else { name.len() }
}

impl Subscriptions {
    /// How many subscriptions of a kind there are.
    pub fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    /// Whether there is no subscription of any kind.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many subscriptions of all kinds there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Adds one; returns whether it is new. The client [listens](PubSub::listen) a little later, so that it
    /// can be sent the confirmation before the first message.
    pub fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        let is_new = self.names[kind as usize].insert(name.into());
        if is_new {
            self.total += 1;
            self.bytes += bytes_of(kind, name);
        }
        is_new
    }

    /// Removes one; returns whether it was there.
    fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let was_there = self.names[kind as usize].remove(name);
        if was_there {
            self.total -= 1;
            self.bytes -= bytes_of(kind, name);
        }
        was_there
    }

    /// Bytes that the names take.
    pub fn bytes(&self) -> usize {
        self.bytes + self.total * size_of::<Box<[u8]>>()
    }

    /// The count in the reply to a change of subscriptions of a kind: channels and patterns are counted
    /// together, sharded channels apart.
    pub fn told(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.count(Kind::Shard),
            Kind::Channel | Kind::Pattern => self.count(Kind::Channel) + self.count(Kind::Pattern),
        }
    }

    /// All subscriptions of a kind.
    pub fn names(&self, kind: Kind) -> impl ExactSizeIterator<Item = &[u8]> {
        self.names[kind as usize].iter().map(|name| &**name)
    }
}

/// A message to listeners of one kind, in each version of the protocol, made when it is first needed.
struct Message<'a> {
    kind: Kind,
    /// The channel or the pattern.
    name: &'a [u8],
    parts: &'a [&'a [u8]],
    encoded: [Option<Vec<u8>>; 2],
    /// The same as letters share it: after the name.
    kept: [Option<Arc<[u8]>>; 2],
}

impl<'a> Message<'a> {
    fn new(kind: Kind, name: &'a [u8], parts: &'a [&'a [u8]]) -> Message<'a> {
        Message { kind, name, parts, encoded: [None, None], kept: [None, None] }
    }

    fn send_to(&mut self, client: &Client) {
        let protocol = client.protocol();
        let parts = self.parts;
        let bytes = self.encoded[slot(protocol)].get_or_insert_with(|| encoded(parts, protocol, Vec::new()));
        client.send(bytes);
    }

    /// Writes the letter to one client, unless the client exceeds its limits.
    fn letter_to(&mut self, client: &Arc<Client>, is_first: bool) -> Option<Letter> {
        let protocol = client.protocol();
        let (name, parts) = (self.name, self.parts);
        let kept =
            self.kept[slot(protocol)].get_or_insert_with(|| encoded(parts, protocol, name.into()).into());
        let (receiver, text) = (Arc::clone(client), Arc::clone(kept));
        client.reserve(text.len() - name.len()).then(|| Letter {
            receiver,
            text,
            name_bytes: name.len(),
            kind: self.kind,
            is_first,
        })
    }
}

fn slot(protocol: Protocol) -> usize {
    usize::from(protocol == Protocol::Resp3)
}

/// Adds a message to `bytes`.
fn encoded(parts: &[&[u8]], protocol: Protocol, mut bytes: Vec<u8>) -> Vec<u8> {
    let _: Sent = Reply::new(&mut bytes, protocol).push_of(parts.iter(), |part, reply| reply.bulk(part));
    bytes
}

/// A message to one client that is sent later, or dropped.
#[derive(Debug)]
pub struct Letter {
    receiver: Arc<Client>,
    /// The name that the receiver listens to, and the message.
    text: Arc<[u8]>,
    name_bytes: usize,
    kind: Kind,
    /// Whether it is the first one of its message.
    is_first: bool,
}

impl Letter {
    fn name(&self) -> &[u8] {
        &self.text[..self.name_bytes]
    }

    fn send(self) {
        let (receiver, text) = (Arc::clone(&self.receiver), Arc::clone(&self.text));
        let name_bytes = self.name_bytes;
        // Gives back what was reserved.
        drop(self);
        receiver.send(&text[name_bytes..]);
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        self.receiver.give_back(self.text.len() - self.name_bytes);
    }
}

impl PubSub {
    /// Lets a client listen if it `may`; returns whether it may. This is asked under the lock that is held
    /// while [`listeners_refused`](Self::listeners_refused) looks: a permission that is taken away is seen
    /// here, or the listener is seen there.
    pub fn listen(&self, kind: Kind, name: &[u8], client: &Arc<Client>, may: impl FnOnce() -> bool) -> bool {
        let pattern = (kind == Kind::Pattern).then(|| Box::new(Pattern::owned(name)));
        let mut listeners = self.listeners.lock();
        if !may() {
            return false;
        }
        let of_name = listeners[kind as usize].entry(name.into());
        let of_name = of_name.or_insert_with(|| Listeners { clients: BTreeMap::new(), pattern });
        of_name.clients.insert(client.id, Arc::clone(client));
        true
    }

    /// Ends one subscription; returns whether the client had it.
    pub fn unsubscribe(
        &self,
        kind: Kind,
        name: &[u8],
        client: &Client,
        subscriptions: &mut Subscriptions,
    ) -> bool {
        let was_there = subscriptions.remove(kind, name);
        if was_there {
            let of_kind = &mut self.listeners.lock()[kind as usize];
            if let Some(of_name) = of_kind.get_mut(name) {
                of_name.clients.remove(&client.id);
                if of_name.clients.is_empty() {
                    of_kind.remove(name);
                    if of_kind.len() < of_kind.capacity() / 8 {
                        // One client may have listened to a million names.
                        of_kind.shrink_to(NAMES_KEPT_MIN.max(of_kind.len() * 2));
                    }
                }
            }
        }
        was_there
    }

    /// Ends all subscriptions of a client, without a message to it.
    pub fn leave(&self, client: &Client, subscriptions: &mut Subscriptions) {
        for kind in KINDS {
            while let Some(name) = subscriptions.names[kind as usize].first().cloned() {
                self.unsubscribe(kind, &name, client, subscriptions);
            }
        }
    }

    /// Sends a message to all listeners of a channel, or of a sharded channel. Returns how many there are.
    pub fn publish(&self, kind: Kind, channel: &[u8], message: &[u8]) -> usize {
        self.for_receivers(kind, channel, message, |client, message| message.send_to(client))
    }

    /// The same for a message that is sent later: `keep` gets a letter to each receiver.
    pub fn write_letters(
        &self,
        kind: Kind,
        channel: &[u8],
        message: &[u8],
        mut keep: impl FnMut(Letter),
    ) -> usize {
        let mut is_first = true;
        self.for_receivers(kind, channel, message, |client, message| {
            if let Some(letter) = message.letter_to(client, is_first) {
                is_first = false;
                keep(letter);
            }
        })
    }

    /// Sends letters. A client that has stopped listening since they were written could take one for
    /// a reply, and gets none; but the client that has `published` them gets its own, before its reply.
    pub fn send_letters(&self, letters: impl Iterator<Item = Letter>, published: u64) {
        let mut listeners = self.listeners.lock();
        for letter in letters {
            if letter.is_first {
                // Another client may publish between two messages, but not within one.
                MutexGuard::bump(&mut listeners);
            }
            let of_name = listeners[letter.kind as usize].get(letter.name());
            let listens = of_name.is_some_and(|of_name| of_name.clients.contains_key(&letter.receiver.id));
            if listens || letter.receiver.id == published {
                letter.send();
            }
        }
    }

    /// Calls `post` for each client that a message is for. Returns how many there are.
    fn for_receivers(
        &self,
        kind: Kind,
        channel: &[u8],
        message: &[u8],
        mut post: impl FnMut(&Arc<Client>, &mut Message<'_>),
    ) -> usize {
        let listeners = self.listeners.lock();
        let mut count = 0;
        let mut post_to = |of_name: &Listeners, kind, name: &[u8], parts: &[&[u8]]| {
            let mut message = Message::new(kind, name, parts);
            // Clients that were killed are about to leave.
            let staying = of_name.clients.values().filter(|client| client.leaving() != Leaving::Now);
            count += staying.inspect(|client| post(client, &mut message)).count();
        };
        if let Some(of_channel) = listeners[kind as usize].get(channel) {
            let word: &[u8] = if kind == Kind::Shard { b"smessage" } else { b"message" };
            post_to(of_channel, kind, channel, &[word, channel, message]);
        }
        if kind == Kind::Channel {
            for of_pattern in listeners[Kind::Pattern as usize].values() {
                if let Some(pattern) =
                    of_pattern.pattern.as_deref().filter(|pattern| pattern.matches(channel))
                {
                    let parts: [&[u8]; 4] = [b"pmessage", pattern.bytes(), channel, message];
                    post_to(of_pattern, Kind::Pattern, pattern.bytes(), &parts);
                }
            }
        }
        count
    }

    /// Clients that listen to something for which `is_refused`.
    pub fn listeners_refused(
        &self,
        mut is_refused: impl FnMut(Kind, &[u8], &Client) -> bool,
    ) -> Vec<Arc<Client>> {
        let mut refused: BTreeMap<u64, Arc<Client>> = BTreeMap::new();
        let listeners = self.listeners.lock();
        for (kind, of_kind) in KINDS.into_iter().zip(&*listeners) {
            for (name, of_name) in of_kind {
                let those = of_name.clients.values().filter(|client| is_refused(kind, name, client));
                refused.extend(those.map(|client| (client.id, Arc::clone(client))));
            }
        }
        refused.into_values().collect()
    }

    /// How many channels or patterns have listeners.
    pub fn count(&self, kind: Kind) -> usize {
        self.listeners.lock()[kind as usize].len()
    }

    /// How many clients listen to a channel.
    pub fn listeners(&self, kind: Kind, name: &[u8]) -> usize {
        self.listeners.lock()[kind as usize].get(name).map_or(0, |of_name| of_name.clients.len())
    }

    /// The channels that have listeners, and that match a pattern if there is one.
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let pattern = pattern.map(|pattern| Pattern::new(pattern, false));
        let listeners = self.listeners.lock();
        let names = listeners[kind as usize].keys();
        names.filter(|name| pattern.as_ref().is_none_or(|pattern| pattern.matches(name))).cloned().collect()
    }
}
