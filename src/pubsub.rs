//! Channels: who listens to which, and messages on their way to them.
//!
//! A message is put into the mail of every subscriber at once, under the lock of the registry: all
//! subscribers of a channel see its messages in one order. A subscriber that does not take its mail is cut
//! off by `client-output-buffer-limit pubsub` and slows nobody down.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::Client;
use crate::glob::{self, Pattern};
use crate::resp::{Protocol, Reply, Sent};

/// How channels are named by those who listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By their names (SUBSCRIBE).
    Channel,
    /// By patterns (PSUBSCRIBE).
    Pattern,
    /// By their names, in the space of names of sharded channels (SSUBSCRIBE).
    Shard,
}

/// All kinds, in the order in which a client's end of listening is told.
pub const KINDS: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];

/// Names that there is always room for, once there were so many.
const NAMES_KEPT_MIN: usize = 1024;

/// Who listens to what.
#[derive(Debug, Default)]
pub struct PubSub {
    listeners: Mutex<[HashMap<Box<[u8]>, Listeners>; KINDS.len()]>,
}

/// Those who listen to one channel or pattern, by the numbers of clients.
type Listeners = BTreeMap<u64, Arc<Client>>;

/// What one client listens to.
#[derive(Debug, Default)]
pub struct Subscriptions {
    names: [BTreeSet<Box<[u8]>>; KINDS.len()],
    total: usize,
    /// Bytes of the names.
    bytes: usize,
}

impl Subscriptions {
    /// How many of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    /// Whether there is none of any kind.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many of all kinds.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Adds one; returns whether it is new. The client [listens](PubSub::listen) a little later, so that it
    /// can be sent the confirmation before the first message.
    pub fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        let is_new = self.names[kind as usize].insert(name.into());
        if is_new {
            self.total += 1;
            self.bytes += name.len();
        }
        is_new
    }

    /// Takes one away; returns whether it was there.
    fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let was_there = self.names[kind as usize].remove(name);
        if was_there {
            self.total -= 1;
            self.bytes -= name.len();
        }
        was_there
    }

    /// Bytes that the names take.
    pub fn bytes(&self) -> usize {
        self.bytes + self.total * size_of::<Box<[u8]>>()
    }

    /// The number that a client is told when its subscriptions of a kind change: channels and patterns are
    /// counted together, those of sharded channels alone.
    pub fn told(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.count(Kind::Shard),
            Kind::Channel | Kind::Pattern => self.count(Kind::Channel) + self.count(Kind::Pattern),
        }
    }

    /// All of a kind.
    pub fn names(&self, kind: Kind) -> impl ExactSizeIterator<Item = &[u8]> {
        self.names[kind as usize].iter().map(|name| &**name)
    }
}

/// A message in one version of the protocol after the other, each made when it is first needed.
struct Message<'a> {
    parts: &'a [&'a [u8]],
    encoded: [Option<Vec<u8>>; 2],
}

impl<'a> Message<'a> {
    fn new(parts: &'a [&'a [u8]]) -> Message<'a> {
        Message { parts, encoded: [None, None] }
    }

    fn send_to(&mut self, client: &Client) {
        let protocol = client.protocol();
        let slot = match protocol {
            Protocol::Resp2 => &mut self.encoded[0],
            Protocol::Resp3 => &mut self.encoded[1],
        };
        let parts = self.parts;
        let bytes = slot.get_or_insert_with(|| {
            let mut bytes = Vec::new();
            let _: Sent =
                Reply::new(&mut bytes, protocol).push_of(parts.iter(), |part, reply| reply.bulk(part));
            bytes
        });
        client.send(bytes);
    }
}

impl PubSub {
    /// Lets a client listen.
    pub fn listen(&self, kind: Kind, name: &[u8], client: &Arc<Client>) {
        let mut listeners = self.listeners.lock();
        let of_name = listeners[kind as usize].entry(name.into()).or_default();
        of_name.insert(client.id, Arc::clone(client));
    }

    /// Ends it; answers whether the client listened.
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
                of_name.remove(&client.id);
                if of_name.is_empty() {
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

    /// Ends everything that a client listens to, without a word.
    pub fn leave(&self, client: &Client, subscriptions: &mut Subscriptions) {
        for kind in KINDS {
            while let Some(name) = subscriptions.names[kind as usize].first().cloned() {
                self.unsubscribe(kind, &name, client, subscriptions);
            }
        }
    }

    /// Sends a message to all who listen to a channel; answers how often it was sent.
    pub fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let listeners = self.listeners.lock();
        let mut sent = 0;
        if let Some(of_channel) = listeners[Kind::Channel as usize].get(channel) {
            sent += send(of_channel, &[b"message", channel, message]);
        }
        for (pattern, of_pattern) in &listeners[Kind::Pattern as usize] {
            if glob::matches(pattern, channel, false) {
                sent += send(of_pattern, &[b"pmessage", pattern, channel, message]);
            }
        }
        sent
    }

    /// The same for a sharded channel.
    pub fn publish_sharded(&self, channel: &[u8], message: &[u8]) -> usize {
        let listeners = self.listeners.lock();
        let of_channel = listeners[Kind::Shard as usize].get(channel);
        of_channel.map_or(0, |of_channel| send(of_channel, &[b"smessage", channel, message]))
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
                let those = of_name.values().filter(|client| is_refused(kind, name, client));
                refused.extend(those.map(|client| (client.id, Arc::clone(client))));
            }
        }
        refused.into_values().collect()
    }

    /// How many channels or patterns anybody listens to.
    pub fn count(&self, kind: Kind) -> usize {
        self.listeners.lock()[kind as usize].len()
    }

    /// How many clients listen to a channel.
    pub fn listeners(&self, kind: Kind, name: &[u8]) -> usize {
        self.listeners.lock()[kind as usize].get(name).map_or(0, Listeners::len)
    }

    /// The channels that anybody listens to, and that match a pattern if there is one.
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let pattern = pattern.map(|pattern| Pattern::new(pattern, false));
        let listeners = self.listeners.lock();
        let names = listeners[kind as usize].keys();
        names.filter(|name| pattern.as_ref().is_none_or(|pattern| pattern.matches(name))).cloned().collect()
    }
}

fn send(listeners: &Listeners, parts: &[&[u8]]) -> usize {
    let mut message = Message::new(parts);
    listeners.values().for_each(|client| message.send_to(client));
    listeners.len()
}
