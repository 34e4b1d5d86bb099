//! Keys that front-ends leave to each other, so that no client tries for ever in vain.
//!
//! The store decides which front-end is first, and the one that has just changed a key often is first again:
//! it knows the row. So a front-end that has been beaten for too long says so ([`News::Asks`]): for its
//! clients that wait for a key (`lines.rs`), or for requests that write it. The others leave the key to it
//! from then on, until it says that it has had its turn. One that has not come within [`GRACE`] since the key
//! was left to it is passed over: it is frozen or dead. One that asks for a key itself leaves it to no other.
//!
//! News may be lost, and then only fairness is: which client gets what is decided by the store.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::batch::{Ticket, Verdict};
use super::news::News;
use super::row::Key;

/// How long a key is left to another front-end.
const GRACE: Duration = Duration::from_millis(500);
/// For how long clients wait and see others served before their front-end asks for a turn.
const BEATEN_FOR: Duration = Duration::from_secs(1);
/// How often a front-end asks again at most, if it is beaten again.
const ASKS_EVERY: Duration = Duration::from_millis(100);
/// Turns that others ask for. More are not noted.
const ASKED_MAX: usize = 100_000;

/// For what a turn is asked: a value of this kind for clients that wait, or [`WRITES`].
pub(super) type Purpose = u8;

/// To write the key.
pub(super) const WRITES: Purpose = u8::MAX;

/// What is asked of whom.
#[derive(Debug, Default)]
pub(super) struct Turns {
    wishes: HashMap<(Key, Purpose), Wish>,
    /// What is to be told to other front-ends.
    news: Vec<News>,
}

#[derive(Debug, Default)]
struct Wish {
    /// How many requests here ask for a turn.
    here: usize,
    /// Since when clients here have seen others served.
    beaten: Option<Instant>,
    /// When the others were told last.
    told: Option<Instant>,
    /// The front-ends that ask for a turn, and since when the key is left to them.
    elsewhere: Vec<(i64, Option<Instant>)>,
    /// Requests here that wait for the end of their turns.
    waiting: Vec<oneshot::Sender<Verdict>>,
}

impl Wish {
    fn is_over(&self) -> bool {
        self.here == 0 && self.beaten.is_none() && self.elsewhere.is_empty()
    }

    fn tell(&mut self, key: &Key, purpose: Purpose, now: Instant, news: &mut Vec<News>) {
        if self.told.is_none_or(|told| told + ASKS_EVERY <= now) {
            self.told = Some(now);
            news.push(News::Asks { key: key.clone(), purpose, is_over: false });
        }
    }

    /// Lets the requests go on that wait.
    fn go_on(&mut self) {
        self.waiting.drain(..).for_each(|waiting| drop(waiting.send(Verdict::Again)));
    }
}

impl Turns {
    /// Notes that clients which wait for a key have seen others served.
    pub(super) fn beaten(&mut self, key: &Key, kind: u8, now: Instant) {
        let wish = self.wishes.entry((key.clone(), kind)).or_default();
        if *wish.beaten.get_or_insert(now) + BEATEN_FOR <= now {
            wish.here = 1;
            wish.tell(key, kind, now, &mut self.news);
        }
    }

    /// Notes that one of them was served, or that none of them waits any more.
    pub(super) fn served(&mut self, key: &Key, kind: u8) {
        self.settle(key, kind, |wish| (wish.here, wish.beaten) = (0, None));
    }

    /// Asks for a turn to write a key.
    pub(super) fn ask(&mut self, key: &Key, now: Instant) {
        let wish = self.wishes.entry((key.clone(), WRITES)).or_default();
        wish.here += 1;
        wish.go_on();
        wish.tell(key, WRITES, now, &mut self.news);
    }

    /// Notes that a request has written a key, or does not want to any more.
    pub(super) fn end(&mut self, key: &Key) {
        self.settle(key, WRITES, |wish| wish.here = wish.here.saturating_sub(1));
    }

    fn settle(&mut self, key: &Key, purpose: Purpose, change: impl FnOnce(&mut Wish)) {
        if self.wishes.is_empty() {
            return;
        }
        let name = (key.clone(), purpose);
        let Some(wish) = self.wishes.get_mut(&name) else { return };
        change(wish);
        if wish.here == 0 && wish.told.take().is_some() {
            self.news.push(News::Asks { key: name.0.clone(), purpose, is_over: true });
        }
        if wish.is_over() {
            self.wishes.remove(&name);
        }
    }

    /// Hears that another front-end asks for a turn, or has had it.
    pub(super) fn hear(&mut self, front: i64, (key, purpose): (&Key, Purpose), is_over: bool) {
        let name = (key.clone(), purpose);
        if !is_over && self.wishes.len() < ASKED_MAX {
            let wish = self.wishes.entry(name).or_default();
            if wish.elsewhere.iter().all(|(other, _)| *other != front) {
                wish.elsewhere.push((front, None));
            }
        } else if let Some(wish) = self.wishes.get_mut(&name) {
            wish.elsewhere.retain(|(other, _)| *other != front);
            self.forget_if_over(&name);
        }
    }

    /// Forgets what front-ends have asked for that have gone.
    pub(super) fn keep(&mut self, is_there: impl Fn(i64) -> bool) {
        for wish in self.wishes.values_mut() {
            wish.elsewhere.retain(|(front, _)| is_there(*front));
            if wish.elsewhere.is_empty() {
                wish.go_on();
            }
        }
        self.wishes.retain(|_, wish| !wish.is_over());
    }

    /// Until when a key is left to other front-ends, if it is.
    pub(super) fn left_until(&mut self, key: &Key, purpose: Purpose, now: Instant) -> Option<Instant> {
        if self.wishes.is_empty() {
            return None;
        }
        let name = (key.clone(), purpose);
        let wish = self.wishes.get_mut(&name).filter(|wish| wish.here == 0)?;
        wish.elsewhere.retain_mut(|(_, since)| *since.get_or_insert(now) + GRACE > now);
        let until = wish.elsewhere.iter().filter_map(|(_, since)| Some((*since)? + GRACE)).max();
        self.forget_if_over(&name);
        until
    }

    /// A promise of the end of the turns of others. It is the caller who knows when they are over at the
    /// latest.
    pub(super) fn wait(&mut self, key: &Key) -> Ticket {
        let (sender, ticket) = oneshot::channel();
        self.wishes.entry((key.clone(), WRITES)).or_default().waiting.push(sender);
        ticket
    }

    fn forget_if_over(&mut self, name: &(Key, Purpose)) {
        let Some(wish) = self.wishes.get_mut(name) else { return };
        if wish.elsewhere.is_empty() {
            wish.go_on();
        }
        if wish.is_over() {
            self.wishes.remove(name);
        }
    }

    /// What is to be told to other front-ends.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_left_to_those_who_ask_but_not_for_long_and_not_by_one_that_asks_itself() {
        let (now, mut turns) = (Instant::now(), Turns::default());
        let key = Key::new(0, b"k");
        let asks = |is_over| News::Asks { key: key.clone(), purpose: WRITES, is_over };
        assert_eq!(turns.left_until(&key, WRITES, now), None);
        turns.hear(1, (&key, WRITES), false);
        turns.hear(2, (&key, WRITES), false);
        assert_eq!(turns.left_until(&key, 1, now), None, "that is another purpose");
        // The time begins when the key is left to them, not when they ask.
        let later = now + GRACE * 3;
        assert_eq!(turns.left_until(&key, WRITES, later), Some(later + GRACE));
        let mut waiting = turns.wait(&key);
        turns.hear(1, (&key, WRITES), true);
        assert!(waiting.try_recv().is_err(), "the other one has not had its turn");
        turns.ask(&key, later);
        turns.ask(&key, later);
        assert!(matches!(waiting.try_recv(), Ok(Verdict::Again)));
        assert_eq!(turns.left_until(&key, WRITES, later), None);
        turns.ask(&key, later + ASKS_EVERY);
        turns.end(&key);
        turns.end(&key);
        assert_eq!(turns.take_news(), [asks(false), asks(false)]);
        turns.end(&key);
        assert_eq!(turns.take_news(), [asks(true)]);
        let mut waiting = turns.wait(&key);
        assert_eq!(turns.left_until(&key, WRITES, later + GRACE), None, "it is passed over");
        assert!(matches!(waiting.try_recv(), Ok(Verdict::Again)) && turns.wishes.is_empty());
        // It has gone.
        turns.hear(2, (&key, WRITES), false);
        turns.keep(|front| front != 2);
        assert!(turns.wishes.is_empty());
    }
}
