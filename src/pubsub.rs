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

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use crate::clients::{Client, Leaving};
use crate::glob::Pattern;
use crate::keyspace::Names;
use crate::resp::{Protocol, Reply, Sent};

/// How listeners name channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// By their names (SUBSCRIBE).
    Channel,
    /// By patterns (PSUBSCRIBE).
    Pattern,
    /// By their names, in the space of names of sharded channels (SSUBSCRIBE).
    Shard,
}

/// All kinds, in the order in which a client is notified of the end of its subscriptions.
pub(crate) const KINDS: [ChannelKind; 3] = [ChannelKind::Channel, ChannelKind::Pattern, ChannelKind::Shard];

/// A table that once had this number of names keeps room for them.
const NAMES_KEPT_MIN: usize = 1024;

/// In how many tables the names of channels are, a power of two: while all names are listed, those of one
/// table are copied at a time. With a million names that takes some 2 ms a table.
const TABLES: usize = 64;

/// All listeners, by channel or pattern.
#[derive(Debug, Default)]
pub struct PubSub {
    listeners: Mutex<[Register; KINDS.len()]>,
    hashing: RandomState,
}

/// The listeners of all names of one kind.
#[derive(Debug, Default)]
struct Register {
    /// By the hashes of the names. There are none before the first name.
    tables: Box<[HashTable<Listeners>]>,
    len: usize,
}

/// The listeners of one channel or pattern.
#[derive(Debug)]
struct Listeners {
    /// The channel or the pattern.
    name: Box<[u8]>,
    /// By their numbers.
    clients: BTreeMap<u64, Arc<Client>>,
    /// The pattern, ready to be matched.
    pattern: Option<Box<Pattern<'static>>>,
}

impl Register {
    /// The number of the table of a hash. A table takes places and tags from other bits.
    fn table_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.tables.len().saturating_sub(1)
    }

    fn get(&self, hash: u64, name: &[u8]) -> Option<&Listeners> {
        self.tables.get(self.table_of(hash))?.find(hash, |of_name| *of_name.name == *name)
    }

    fn get_or_insert(
        &mut self,
        kind: ChannelKind,
        hash: u64,
        new: Listeners,
        hash_of: impl Fn(&Listeners) -> u64,
    ) -> &mut Listeners {
        if self.tables.is_empty() {
            // A message is matched with all patterns, so they are better off together.
            let tables = if kind == ChannelKind::Pattern { 1 } else { TABLES };
            self.tables = (0..tables).map(|_| HashTable::new()).collect();
        }
        let at = self.table_of(hash);
        let entry = self.tables[at].entry(hash, |of_name| of_name.name == new.name, hash_of);
        self.len += usize::from(matches!(entry, hashbrown::hash_table::Entry::Vacant(_)));
        entry.or_insert(new).into_mut()
    }

    /// Removes one client from the listeners of a name.
    fn remove(&mut self, hash: u64, name: &[u8], client: u64, hash_of: impl Fn(&Listeners) -> u64) {
        let (at, kept) = (self.table_of(hash), NAMES_KEPT_MIN / self.tables.len().max(1));
        let Some(table) = self.tables.get_mut(at) else { return };
        let Ok(mut found) = table.find_entry(hash, |of_name| *of_name.name == *name) else { return };
        found.get_mut().clients.remove(&client);
        if found.get().clients.is_empty() {
            found.remove();
            self.len -= 1;
            if table.len() < table.capacity() / 8 {
                // One client may have listened to a million names.
                table.shrink_to(kept.max(table.len() * 2), hash_of);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Listeners> {
        self.tables.iter().flatten()
    }
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
fn bytes_of(kind: ChannelKind, name: &[u8]) -> usize {
    if kind == ChannelKind::Pattern { name.len() * 5 } else { name.len() }
}

impl Subscriptions {
    /// How many subscriptions of a kind there are.
    pub fn count(&self, kind: ChannelKind) -> usize {
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
    pub fn add(&mut self, kind: ChannelKind, name: &[u8]) -> bool {
        let is_new = self.names[kind as usize].insert(name.into());
        if is_new {
            self.total += 1;
            self.bytes += bytes_of(kind, name);
        }
        is_new
    }

    /// Removes one; returns whether it was there.
    fn remove(&mut self, kind: ChannelKind, name: &[u8]) -> bool {
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
    pub fn told(&self, kind: ChannelKind) -> usize {
        match kind {
            ChannelKind::Shard => self.count(ChannelKind::Shard),
            ChannelKind::Channel | ChannelKind::Pattern => {
                self.count(ChannelKind::Channel) + self.count(ChannelKind::Pattern)
            }
        }
    }

    /// All subscriptions of a kind.
    pub fn names(&self, kind: ChannelKind) -> impl ExactSizeIterator<Item = &[u8]> {
        self.names[kind as usize].iter().map(|name| &**name)
    }
}

/// A message to listeners of one kind, in each version of the protocol, made when it is first needed.
struct Message<'a> {
    kind: ChannelKind,
    /// The channel or the pattern.
    name: &'a [u8],
    parts: &'a [&'a [u8]],
    encoded: [Option<Vec<u8>>; 2],
    /// The same as letters share it: after the name.
    kept: [Option<Arc<[u8]>>; 2],
}

impl<'a> Message<'a> {
    fn new(kind: ChannelKind, name: &'a [u8], parts: &'a [&'a [u8]]) -> Message<'a> {
        Message { kind, name, parts, encoded: [None, None], kept: [None, None] }
    }

    fn send_to(&mut self, client: &Client, publisher: Option<u64>) {
        let protocol = client.protocol();
        let parts = self.parts;
        let bytes = self.encoded[slot(protocol)].get_or_insert_with(|| encoded(parts, protocol, Vec::new()));
        client.send_news(bytes, publisher == Some(client.id));
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
    kind: ChannelKind,
    /// Whether it is the first one of its message.
    is_first: bool,
}

impl Letter {
    fn name(&self) -> &[u8] {
        &self.text[..self.name_bytes]
    }

    fn send(self, publisher: u64) {
        let (receiver, text) = (Arc::clone(&self.receiver), Arc::clone(&self.text));
        let name_bytes = self.name_bytes;
        // Gives back what was reserved.
        drop(self);
        receiver.send_news(&text[name_bytes..], publisher == receiver.id);
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
    pub fn listen(
        &self,
        kind: ChannelKind,
        name: &[u8],
        client: &Arc<Client>,
        may: impl FnOnce() -> bool,
    ) -> bool {
        let pattern = (kind == ChannelKind::Pattern).then(|| Box::new(Pattern::owned(name)));
        let (hash, new) =
            (self.hash(name), Listeners { name: name.into(), clients: BTreeMap::new(), pattern });
        let mut listeners = self.listeners.lock();
        if !may() {
            return false;
        }
        let of_name = listeners[kind as usize].get_or_insert(kind, hash, new, |it| self.hash(&it.name));
        of_name.clients.insert(client.id, Arc::clone(client));
        true
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.hashing.hash_one(name)
    }

    /// Ends one subscription; returns whether the client had it.
    pub fn unsubscribe(
        &self,
        kind: ChannelKind,
        name: &[u8],
        client: &Client,
        subscriptions: &mut Subscriptions,
    ) -> bool {
        let was_there = subscriptions.remove(kind, name);
        if was_there {
            let of_kind = &mut self.listeners.lock()[kind as usize];
            of_kind.remove(self.hash(name), name, client.id, |it| self.hash(&it.name));
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
    /// The client that publishes it, if one does, gets the reply to its request first.
    pub fn publish(
        &self,
        kind: ChannelKind,
        channel: &[u8],
        message: &[u8],
        publisher: Option<u64>,
    ) -> usize {
        self.for_receivers(kind, channel, message, |client, message| message.send_to(client, publisher))
    }

    /// The same for a message that is sent later: `keep` gets a letter to each receiver.
    pub fn write_letters(
        &self,
        kind: ChannelKind,
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
    /// a reply, and gets none; but the client that has `published` them gets its own, behind its reply.
    pub fn send_letters(&self, letters: impl Iterator<Item = Letter>, published: u64) {
        let mut listeners = self.listeners.lock();
        for letter in letters {
            if letter.is_first {
                // Another client may publish between two messages, but not within one.
                MutexGuard::bump(&mut listeners);
            }
            let of_name = listeners[letter.kind as usize].get(self.hash(letter.name()), letter.name());
            let listens = of_name.is_some_and(|of_name| of_name.clients.contains_key(&letter.receiver.id));
            if listens || letter.receiver.id == published {
                letter.send(published);
            }
        }
    }

    /// Calls `post` for each client that a message is for. Returns how many there are.
    fn for_receivers(
        &self,
        kind: ChannelKind,
        channel: &[u8],
        message: &[u8],
        mut post: impl FnMut(&Arc<Client>, &mut Message<'_>),
    ) -> usize {
        let hash = self.hash(channel);
        let listeners = self.listeners.lock();
        let mut count = 0;
        let mut post_to = |of_name: &Listeners, kind, name: &[u8], parts: &[&[u8]]| {
            let mut message = Message::new(kind, name, parts);
            // Clients that were killed are about to leave.
            let staying = of_name.clients.values().filter(|client| client.leaving() != Leaving::Now);
            count += staying.inspect(|client| post(client, &mut message)).count();
        };
        if let Some(of_channel) = listeners[kind as usize].get(hash, channel) {
            let word: &[u8] = if kind == ChannelKind::Shard { b"smessage" } else { b"message" };
            post_to(of_channel, kind, channel, &[word, channel, message]);
        }
        if kind == ChannelKind::Channel {
            for of_pattern in listeners[ChannelKind::Pattern as usize].iter() {
                if let Some(pattern) =
                    of_pattern.pattern.as_deref().filter(|pattern| pattern.matches(channel))
                {
                    let parts: [&[u8]; 4] = [b"pmessage", pattern.bytes(), channel, message];
                    post_to(of_pattern, ChannelKind::Pattern, pattern.bytes(), &parts);
                }
            }
        }
        count
    }

    /// Clients that listen to something for which `is_refused`.
    pub fn listeners_refused(
        &self,
        mut is_refused: impl FnMut(ChannelKind, &[u8], &Client) -> bool,
    ) -> Vec<Arc<Client>> {
        let mut refused: BTreeMap<u64, Arc<Client>> = BTreeMap::new();
        let listeners = self.listeners.lock();
        for (kind, of_kind) in KINDS.into_iter().zip(&*listeners) {
            for of_name in of_kind.iter() {
                let those = of_name.clients.values();
                let those = those.filter(|client| is_refused(kind, &of_name.name, client));
                refused.extend(those.map(|client| (client.id, Arc::clone(client))));
            }
        }
        refused.into_values().collect()
    }

    /// How many channels or patterns have listeners.
    pub fn count(&self, kind: ChannelKind) -> usize {
        self.listeners.lock()[kind as usize].len
    }

    /// How many clients listen to a channel.
    pub fn listeners(&self, kind: ChannelKind, name: &[u8]) -> usize {
        let hash = self.hash(name);
        self.listeners.lock()[kind as usize].get(hash, name).map_or(0, |of_name| of_name.clients.len())
    }

    /// The channels that have listeners, and that match a pattern if there is one.
    pub fn names(&self, kind: ChannelKind, pattern: Option<&[u8]>) -> Names {
        let pattern = pattern.map(|pattern| Pattern::new(pattern, false));
        let mut names = Names::default();
        self.for_each_name(kind, |name| {
            if pattern.as_ref().is_none_or(|pattern| pattern.matches(name)) {
                names.push(name);
            }
        });
        names
    }

    /// Calls `see` for each name that has listeners. Other clients listen and publish meanwhile: a name that
    /// has listeners from the beginning to the end is seen once, and one that gets or loses them may be.
    fn for_each_name(&self, kind: ChannelKind, mut see: impl FnMut(&[u8])) {
        let mut copies = Names::default();
        for at in 0..TABLES {
            copies.clear();
            let listeners = self.listeners.lock();
            let Some(table) = listeners[kind as usize].tables.get(at) else { break };
            table.iter().for_each(|of_name| copies.push(&of_name.name));
            drop(listeners);
            copies.iter().for_each(&mut see);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::{Address, Clients};

    #[test]
    fn other_clients_listen_and_publish_while_names_are_listed() {
        const CHANNELS: usize = 100 * TABLES;
        let (pubsub, clients) = (PubSub::default(), Arc::new(Clients::new(Arc::default())));
        let nowhere = Address::Unix(Path::new("").into());
        let registration = clients.register(nowhere.clone(), nowhere, -1);
        let (client, mut subscriptions) = (&registration.client, Subscriptions::default());
        let name = |number: usize| format!("channel:{number}").into_bytes();
        for number in 0..CHANNELS {
            subscriptions.add(ChannelKind::Channel, &name(number));
            assert!(pubsub.listen(ChannelKind::Channel, &name(number), client, || true));
        }
        assert_eq!(pubsub.count(ChannelKind::Channel), CHANNELS);
        assert_eq!(pubsub.names(ChannelKind::Channel, None).iter().len(), CHANNELS);
        assert_eq!(pubsub.names(ChannelKind::Channel, Some(b"*:7?")).iter().len(), 10);
        assert!(pubsub.listen(ChannelKind::Channel, &name(7), client, || true));
        assert_eq!(pubsub.count(ChannelKind::Channel), CHANNELS, "it listened already");
        assert_eq!(pubsub.names(ChannelKind::Shard, None).iter().len(), 0);
        let mut seen = 0;
        pubsub.for_each_name(ChannelKind::Channel, |_| {
            assert!(pubsub.listeners.try_lock().is_some(), "other clients wait");
            if seen == 0 {
                pubsub.leave(client, &mut subscriptions);
            }
            seen += 1;
        });
        assert!((1..CHANNELS / 10).contains(&seen), "{seen} names were copied at once");
        assert_eq!(
            (pubsub.count(ChannelKind::Channel), pubsub.listeners(ChannelKind::Channel, &name(1))),
            (0, 0)
        );
    }
}
