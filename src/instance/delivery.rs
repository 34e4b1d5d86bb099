//! Delivers the effects of commands: messages, events, news of keys and of locks.
//!
//! The effects of a single command are delivered when it has run. The effects of the commands of an EXEC or a
//! script are collected in the session's outbox until all have run. The receivers of a message or an event
//! are chosen when it is published. News of keys is delivered later, in the same order.
//!
//! The changes are in the journal before their news is delivered: with `appendfsync always` the receivers
//! wait until everything in the journal is durable. Only the lens follows locks before, since it knows the
//! fencing number that is logged with them.

use std::collections::HashSet;
use std::iter::{from_fn, once};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Instance;
use crate::clients::{Client, Who};
use crate::events::EventClass;
use crate::glob::Pattern;
use crate::keyspace::{Effect, LockChange, LockNews, LostLock, Transaction, Waiter};
use crate::lens::{Cause, Lens, LockUse, Script, Wait, Writer};
use crate::pubsub::{ChannelKind, KINDS};
use crate::remote::news::{Ears, News};
use crate::resp::{OwnedRequest, Protocol, Reply, Request, tree};
use crate::session::{Item, LockItem, Session};

/// The command that had an effect, outside of EXEC and scripts.
#[derive(Clone, Copy)]
pub struct Doer<'a> {
    /// The session of the client that sent the command.
    pub session: &'a Session,
    /// The command's name, and what it means for a lock.
    pub command: (&'static str, LockUse),
    /// The request as the client sent it.
    pub request: Request<'a>,
}

impl Instance {
    /// Sends a message to all clients that listen to a channel: now, or with the outbox of an EXEC or a
    /// script. Returns how many listen.
    pub fn publish(&self, session: &mut Session, kind: ChannelKind, channel: &[u8], message: &[u8]) -> usize {
        if let Some(remote) = self.remote.get() {
            let news = News::message(kind as u8, channel, message);
            match session.may_not_wait {
                false => remote.tell(&news),
                true => session.outbox().add_elsewhere(news),
            }
        }
        match session.may_not_wait {
            false => self.pubsub.publish(kind, channel, message, Some(session.client.id)),
            true => self.publish_later(session, kind, channel, message),
        }
    }

    fn publish_later(
        &self,
        session: &mut Session,
        kind: ChannelKind,
        channel: &[u8],
        message: &[u8],
    ) -> usize {
        self.pubsub.write_letters(kind, channel, message, |letter| session.outbox().add_letter(letter))
    }

    /// Removes news of keys that are no locks after all from the effects of a command, and their marks; and
    /// lets the lens follow what happened to many locks at once. `script` is the request that runs the script
    /// that called the command, if one did.
    pub fn sift(
        &self,
        effects: &mut Vec<Effect>,
        tx: &mut Transaction<'_>,
        session: &Session,
        means: LockUse,
        script: Option<Request<'_>>,
    ) {
        let now_ms = || self.clock.now_ms();
        let is_in_store = session.keys_in_store.is_some();
        effects.retain(|effect| match effect {
            Effect::Lock(news) => self.is_lock_news(news, tx, session, means, script),
            // What is in a store is followed there.
            Effect::LocksFlushed { .. } | Effect::LocksSwapped { .. } if is_in_store => false,
            Effect::LocksFlushed { database } => {
                let lost = self.lens.flush(*database, now_ms());
                if let Ok(mut everything) = tx.everything_mut() {
                    everything.remember_gone_locks(&lost);
                }
                false
            }
            Effect::LocksSwapped { one, other } => {
                self.lens.swap(*one, *other);
                false
            }
            _ => true,
        });
    }

    /// Whether news are those of a lock. If not, the key loses its mark.
    fn is_lock_news(
        &self,
        news: &LockNews,
        tx: &mut Transaction<'_>,
        session: &Session,
        means: LockUse,
        script: Option<Request<'_>>,
    ) -> bool {
        let is_in_store = session.keys_in_store.is_some();
        let which = || Script::of(script?, |_| None);
        let is_queued = session.queue.as_ref().is_some_and(|queue| queue.running.is_some());
        let is_watching = is_queued && session.watching.has(news.database, &news.key);
        let writer = Writer { client: session.client.id, is_watching, means };
        let is_remade = matches!(news.change, LockChange::Remade { .. });
        let is_ignored = news.change.is_taken() && self.ignores_lock(&news.key);
        let is_none =
            is_ignored || is_remade && is_in_store || self.lens.is_no_lock(news, writer, script, which);
        let current = tx.database();
        tx.select(news.database);
        if is_none {
            tx.unfollow(&news.key);
        } else if is_remade {
            tx.follow_again(&news.key);
        }
        tx.select(current);
        if is_none && !is_in_store {
            self.lens.forget(news);
        }
        !is_none
    }

    /// Whether the lens does not follow a key: `lock-lens-ignore` has a pattern for it, or `lock-lens-only`
    /// has none.
    pub fn ignores_lock(&self, key: &[u8]) -> bool {
        let has = |patterns: &[u8]| {
            let mut patterns = patterns.split(u8::is_ascii_whitespace).filter(|pattern| !pattern.is_empty());
            patterns.any(|pattern| Pattern::new(pattern, false).matches(key))
        };
        let config = &self.config;
        has(&config.lock_lens_ignore.get()) || self.lists_locks() && !has(&config.lock_lens_only.get())
    }

    /// Whether there is a list of all locks.
    fn lists_locks(&self) -> bool {
        !self.config.lock_lens_only.get().trim_ascii().is_empty()
    }

    /// Lets the lens follow the locks among the effects of a command whose changes are not logged yet.
    pub fn follow(&self, effects: &[Effect], doer: Doer<'_>) {
        for effect in effects {
            if let Effect::Lock(news) = effect {
                let (who, command, request) = (Who::of(&doer.session.client), doer.command, doer.request);
                let cause = self.cause_of(who, command, request);
                self.follow_lock(news, &cause, doer.session);
            }
        }
    }

    /// Delivers effects on keys, which are logged. `by` is the client that had them, if one had.
    #[cold]
    pub fn notify(&self, effects: Vec<Effect>, by: Option<u64>) {
        self.tracking.tell(&effects, by, &self.clients);
        self.tracking.broadcast(by, &self.clients);
        let classes = self.event_classes();
        for effect in effects {
            match effect {
                Effect::Event { name, database, key } => {
                    let database = self.keyspace.shown_database(database);
                    publish_event(classes, name, database, &key, |channel, message| {
                        self.pubsub.publish(ChannelKind::Channel, channel, message, by);
                    });
                }
                Effect::LockLost(lost) if !lost.is_known(by) => self.tell_lost(&lost),
                // What a client has done was followed before it was logged.
                Effect::Lock(news) if by.is_none() => self.follow_by_itself(&news),
                Effect::LockKept(kept) => self.lens.keep(&kept),
                Effect::Lock(_)
                | Effect::LockLost(_)
                | Effect::LocksFlushed { .. }
                | Effect::LocksSwapped { .. }
                | Effect::Changed { .. }
                | Effect::Flushed => {}
            }
        }
    }

    /// Notifies the holder of a lock, and those who listen to the lock's channel, that it has lost the lock.
    fn tell_lost(&self, lost: &LostLock) {
        let LostLock { client, key, number, why, .. } = lost;
        if let Some(client) = self.clients.get(*client).filter(|client| client.protocol() == Protocol::Resp3)
        {
            let name = [tree::bulk("lock-lost"), tree::bulk(key)];
            let news = name.into_iter().chain([tree::integer(number.cast_signed()), tree::bulk(why.name())]);
            let mut push = Vec::new();
            let _ = Reply::new(&mut push, Protocol::Resp3).tree(&tree::push(news));
            client.send(&push);
        }
        let (channel, message) = lost.message(self.keyspace.shown_database(lost.database));
        self.pubsub.publish(ChannelKind::Channel, &channel, &message, None);
    }

    /// Puts the effects of one command of an EXEC or a script into the session's outbox.
    #[cold]
    pub fn collect(
        &self,
        effects: Vec<Effect>,
        session: &mut Session,
        command: (&'static str, LockUse),
        is_script: bool,
    ) {
        // Events and news of locks come after the news of keys, as for a single command.
        let mut later = Vec::new();
        for effect in effects {
            match effect {
                Effect::Changed { key, by_itself } => session.outbox().add_change(key, by_itself),
                Effect::Flushed => session.outbox().add_flush(),
                Effect::Event { .. } | Effect::Lock(_) | Effect::LockLost(_) => later.push(effect),
                Effect::LockKept(kept) => self.lens.keep(&kept),
                Effect::LocksFlushed { .. } | Effect::LocksSwapped { .. } => {}
            }
        }
        let classes = self.event_classes();
        for effect in later {
            match effect {
                Effect::Event { name, database, key } => {
                    let is_in_store = session.keys_in_store.is_some();
                    let database = self.keyspace.shown_database(database);
                    publish_event(classes, name, database, &key, |channel, message| {
                        self.publish_later(session, ChannelKind::Channel, channel, message);
                        if is_in_store {
                            let news = News::message(ChannelKind::Channel as u8, channel, message);
                            session.outbox().add_elsewhere(news);
                        }
                    });
                }
                Effect::LockLost(lost) if !lost.is_known(Some(session.client.id)) => {
                    session.outbox().add_lost(lost);
                }
                // The store knows who holds the locks there.
                Effect::Lock(_) if session.keys_in_store.is_some() => {}
                Effect::Lock(news) if Lens::follows(&news) => {
                    let queued = session.queue.as_ref().and_then(|queue| queue.running);
                    let who = Who::of(&session.client);
                    session.outbox().add_lock(LockItem { news, who, command, queued, is_script });
                }
                _ => {}
            }
        }
    }

    /// Lets the lens follow the locks in the outbox of an EXEC or a script, whose changes are not logged yet.
    /// `request` is the request that runs its commands.
    #[cold]
    pub fn follow_collected(&self, session: &mut Session, request: Request<'_>) {
        let items = session.outbox().take_locks();
        let place = |lock: &LockItem| (lock.queued, lock.news.database, lock.news.hash);
        let is_settling = |change: LockChange| change.is_taken() || change == LockChange::Freed;
        let settled: HashSet<_> = items
            .iter()
            .filter_map(|item| match item {
                Item::Lock(lock) if lock.is_script && is_settling(lock.news.change) => Some(place(lock)),
                _ => None,
            })
            .collect();
        let mut looked_at = HashSet::new();
        // The last script, since most news of a request are those of one script.
        let mut last = None;
        for item in items {
            let Item::Lock(lock) = item else { return self.lens.forget_all() };
            let settles_it = settled.contains(&place(&lock));
            let looks_again = lock.is_script && lock.news.change.is_look() && !looked_at.insert(place(&lock));
            let LockItem { news, who, command, queued, is_script } = *lock;
            let asked = session.queue.as_ref().zip(queued);
            let asked = asked.and_then(|(queue, index)| queue.commands.get(index)?.request.request());
            let request = asked.unwrap_or(request);
            let script = is_script.then(|| match last {
                Some((at, script)) if at == queued => script,
                _ => {
                    let script = Script::of(request, |digest| self.scripting.text_of(digest));
                    last = Some((queued, script));
                    script
                }
            });
            let script = script.flatten();
            let is_watched = queued.is_some() && session.watching.has(news.database, &news.key);
            let alone = self.cause_of(who, command, request);
            let cause = Cause { script, is_grouped: true, is_watched, settles_it, looks_again, ..alone };
            self.follow_lock(&news, &cause, session);
        }
    }

    /// Delivers the outbox of an EXEC or a script, in its order, once all commands have run and their changes
    /// are logged. `request` is the request that runs them.
    #[cold]
    pub fn deliver(&self, session: &mut Session, request: Request<'_>) {
        if session.outbox.is_some() {
            self.follow_collected(session, request);
        }
        let Some(outbox) = session.outbox.take() else { return };
        let session = &*session;
        let client = &session.client;
        let by = Some(client.id);
        let mut items = outbox.into_items().into_iter().peekable();
        while let Some(item) = items.next() {
            match item {
                Item::Letter(letter) => {
                    let next = || match items.next_if(|item| matches!(item, Item::Letter(_))) {
                        Some(Item::Letter(letter)) => Some(letter),
                        _ => None,
                    };
                    self.pubsub.send_letters(once(letter).chain(from_fn(next)), client.id);
                }
                Item::Elsewhere(news) => self.remote.get().into_iter().for_each(|remote| remote.tell(&news)),
                Item::Own(push) => client.send(&push),
                Item::Changed { key, by_itself } => {
                    self.tracking.tell(&[Effect::Changed { key, by_itself }], by, &self.clients);
                }
                Item::Lost(lost) => self.tell_lost(&lost),
                Item::Flushed => self.tracking.tell(&[Effect::Flushed], by, &self.clients),
                Item::Read { tracker, key } => {
                    let keys_max = self.config.tracking_table_max_keys.size();
                    self.tracking.remember_late(tracker, &key, keys_max, &self.clients);
                }
                // The lens has followed them before.
                Item::Lock(_) | Item::LocksUnknown => {}
            }
        }
        self.tracking.broadcast(by, &self.clients);
    }

    /// The cause of what a command has done to a lock that belongs to no other command.
    fn cause_of<'r>(
        &self,
        who: Arc<Who>,
        command: (&'static str, LockUse),
        request: Request<'r>,
    ) -> Cause<'r> {
        Cause { is_listed: self.lists_locks(), ..Cause::alone(who, command, request) }
    }

    /// Follows that a client was granted a lock for which it has waited.
    fn follow_grant(&self, news: &LockNews) {
        let Some((client, command)) = news.served else { return };
        // Its token is in the news.
        let (mut request, client) = (OwnedRequest::default(), self.clients.get(client));
        request.push(command.as_bytes());
        if self.ignores_lock(&news.key) {
            return self.lens.forget(news);
        }
        if let (Some(client), Some(request)) = (client, request.request()) {
            client.has_taken_locks.store(true, Ordering::Relaxed);
            // Only commands for locks wait for one.
            let command = (command, LockUse::IS_FOR_LOCKS);
            let cause = self.cause_of(Who::of(&client), command, request);
            self.follow_in_lens(news, &cause);
        }
    }

    /// Follows what happened to a lock by no command of the client that has it, or had it.
    fn follow_by_itself(&self, news: &LockNews) {
        match news.change {
            LockChange::Evicted => self.lens.evict(news),
            _ => self.follow_grant(news),
        }
    }

    /// Follows that a client waits for locks, in the line of its place. Returns its number if the lens
    /// follows it: the caller ends that with the wait.
    pub fn follow_wait(&self, client: &Client, waiter: &Arc<Waiter>) -> Option<u64> {
        let is_meant = || waiter.waits_for_absence() || waiter.keys().any(Wait::is_for_lock);
        if !is_meant() || !self.config.lock_lens.get() {
            return None;
        }
        let hash = |key: &[u8]| self.keyspace.hash(key);
        let wait = Wait::new(Who::of(client), waiter, self.clock.now_ms(), hash)?;
        let is_held = |database: usize, key: &[u8], token| {
            self.keyspace.begin(database, key).is_ok_and(|tx| tx.is_lock_of(key, token))
        };
        let missed_ms = self.keyspace.lock_news_missed_ms();
        self.lens.begin_wait(wait, |key| !self.ignores_lock(key), is_held, missed_ms);
        Some(client.id)
    }

    /// Follows that a client has waited for a lock in vain. `request` is the one that has waited, for `key`.
    #[cold]
    pub fn follow_given_up(&self, doer: Doer<'_>, key: &[u8]) {
        if !self.config.lock_lens.get() {
            return;
        }
        let news = LockNews {
            hash: self.keyspace.hash(key),
            database: doer.session.database,
            key: key.into(),
            at_ms: self.clock.now_ms(),
            change: LockChange::GaveUp,
            name: None,
            value: None,
            fence: None,
            served: None,
        };
        self.follow(&[Effect::Lock(news)], doer);
    }

    fn follow_lock(&self, news: &LockNews, cause: &Cause<'_>, session: &Session) {
        if news.served.is_some() || news.change == LockChange::Evicted {
            return self.follow_by_itself(news);
        }
        if self.ignores_lock(&news.key) {
            return self.lens.forget(news);
        }
        // A client that writes a lock may hold it from now on.
        let may_hold = matches!(
            news.change,
            LockChange::Written { .. } | LockChange::Remade { .. } | LockChange::TakenAgain
        );
        if news.change.is_taken() || may_hold {
            session.client.has_taken_locks.store(true, Ordering::Relaxed);
        }
        self.follow_in_lens(news, cause);
        self.followers.journal.note_fencing(self.keyspace.fencing().last());
    }

    fn follow_in_lens(&self, news: &LockNews, cause: &Cause<'_>) {
        self.lens.follow(news, cause);
        if news.change.is_taken() {
            let missed_ms = self.keyspace.lock_news_missed_ms();
            self.lens.follow_holder(news, cause, |key| !self.ignores_lock(key), missed_ms);
        }
    }

    /// Allows reports of locks for the next tenth of a second, if the lens is on.
    pub fn allow_lock_news(&self) {
        self.keyspace.allow_lock_news(self.config.lock_lens.get());
    }

    /// Forgets some of the keys that clients have read, if there are more than the limit.
    pub fn tidy_tracking(&self) {
        self.tracking.tidy(self.config.tracking_table_max_keys.size(), &self.clients);
    }

    pub(super) fn event_classes(&self) -> EventClass {
        EventClass::from_bits(self.config.notify_keyspace_events.get() as u32)
    }
}

/// Hearing of other front-ends of the store.
impl Ears for Instance {
    fn hear(&self, news: News) {
        match news {
            News::Changed(key, _) => {
                let key = (*key.name).into();
                self.tracking.tell(&[Effect::Changed { key, by_itself: false }], None, &self.clients);
            }
            News::Expired(key) => {
                let name = (*key.name).into();
                self.tracking.tell(&[Effect::Changed { key: name, by_itself: true }], None, &self.clients);
                let classes = self.event_classes();
                if classes.contains(EventClass::EXPIRED) {
                    publish_event(
                        classes,
                        "expired",
                        key.database as usize,
                        &key.name,
                        |channel, message| {
                            self.pubsub.publish(ChannelKind::Channel, channel, message, None);
                        },
                    );
                }
            }
            News::Flushed(_) => self.tracking.tell(&[Effect::Flushed], None, &self.clients),
            News::Message { kind, channel, message } => {
                if let Some(kind) = KINDS.get(usize::from(kind)) {
                    self.pubsub.publish(*kind, &channel, &message, None);
                }
            }
            News::Here(_) | News::Tells(_) | News::Asks { .. } => {}
        }
        self.tracking.broadcast(None, &self.clients);
    }

    fn hear_lost(&self, lost: &LostLock) {
        self.tell_lost(lost);
        let (channel, message) = lost.message(self.keyspace.shown_database(lost.database));
        let kind = ChannelKind::Channel as u8;
        self.remote
            .get()
            .into_iter()
            .for_each(|remote| remote.tell(&News::message(kind, &channel, &message)));
    }

    fn wants_keys(&self) -> bool {
        self.followers.interest.is_tracked()
    }

    fn wants_expired(&self) -> bool {
        self.event_classes().contains(EventClass::EXPIRED)
    }
}

/// Publishes one event to the channel of its key and to the channel of its name.
fn publish_event(
    classes: EventClass,
    name: &str,
    database: usize,
    key: &[u8],
    mut publish: impl FnMut(&[u8], &[u8]),
) {
    if classes.contains(EventClass::AS_KEYSPACE) {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        publish(&channel, name.as_bytes());
    }
    if classes.contains(EventClass::AS_KEYEVENT) {
        publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
    }
}
