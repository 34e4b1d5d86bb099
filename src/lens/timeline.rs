//! The history of a lock, in a fixed number of steps.
//!
//! Clients that wait for a lock look at it again and again. So their looks are folded: one step for each
//! client, with the number of times. The step by which a client took the lock stays longer than any other.

use std::collections::VecDeque;
use std::sync::Arc;

use super::cause::Cause;
use crate::clients::Who;

/// Steps that are kept.
const STEPS_MAX: usize = 12;

/// The steps of a lock's history, the first one first.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    steps: VecDeque<Step>,
}

/// What happened in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A client holds the lock from now on.
    Start(&'static str),
    /// A client has looked at it, or tried to take it. Such steps are folded.
    Look(&'static str),
    /// A client has done anything else.
    Deed(&'static str),
    /// It ended, by no client's command.
    End(&'static str),
}

/// Its value was read.
pub(super) const READ: What = What::Look("read it");
/// Its value was read by a command of EXEC: the commands with it could not depend on what it found.
pub(super) const READ_IN_EXEC: What = What::Look("read it in a transaction");
/// An attempt to take it failed.
pub(super) const REFUSED: What = What::Look("was refused");
/// An attempt to take it goes on: the client waits in line.
pub(super) const WAITS: What = What::Look("waits in line");
/// The client has left the line without it.
pub(super) const GAVE_UP: What = What::Look("waited in vain");
/// It was looked for, and is not there.
pub(super) const GONE: What = What::Look("found it gone");
/// It was looked for, and another client has it.
pub(super) const OF_ANOTHER: What = What::Look("found another's value");

/// One step of a lock's history, or the same step several times.
#[derive(Clone, Debug)]
struct Step {
    /// The client that did it, and by which command; `None` if no client did it.
    by: Option<(Arc<Who>, &'static str, bool)>,
    what: What,
    first_ms: u64,
    last_ms: u64,
    times: u32,
}

impl Step {
    fn is_like(&self, other: &Step) -> bool {
        let by =
            |step: &Step| step.by.as_ref().map(|(who, command, is_script)| (who.id, *command, *is_script));
        by(self) == by(other) && self.what == other.what
    }
}

impl Timeline {
    /// Adds a step of a client, or counts it to one like it.
    pub(super) fn add(&mut self, cause: &Cause<'_>, what: What, at_ms: u64) {
        let by = Some((Arc::clone(&cause.who), cause.command, cause.is_script()));
        self.add_step(Step { by, what, first_ms: at_ms, last_ms: at_ms, times: 1 });
    }

    /// Adds a step that no client's command made.
    pub(super) fn add_end(&mut self, what: &'static str, at_ms: u64) {
        let what = What::End(what);
        self.add_step(Step { by: None, what, first_ms: at_ms, last_ms: at_ms, times: 1 });
    }

    fn add_step(&mut self, step: Step) {
        let is_look = |step: &Step| matches!(step.what, What::Look(_));
        let looks = self.steps.iter_mut().rev().enumerate();
        let mut last = looks.take_while(|(at, other)| *at == 0 || is_look(&step) && is_look(other));
        if let Some((_, same)) = last.find(|(_, other)| other.is_like(&step)) {
            same.times = same.times.saturating_add(1);
            same.last_ms = step.last_ms;
            return;
        }
        if self.steps.len() == STEPS_MAX {
            let is_start = |step: &Step| matches!(step.what, What::Start(_));
            let least = self.steps.iter().position(|step| !is_start(step)).unwrap_or(0);
            self.steps.remove(least);
        }
        self.steps.push_back(step);
    }

    /// Whether a client has made such a step since a moment.
    pub(super) fn has(&self, client: u64, what: What, since_ms: u64) -> bool {
        self.steps.iter().any(|step| {
            let by = step.by.as_ref().is_some_and(|(who, ..)| who.id == client);
            by && step.what == what && step.last_ms >= since_ms
        })
    }

    /// When the first step was, in milliseconds since 1970.
    pub(super) fn since_ms(&self) -> u64 {
        self.steps.front().map_or(0, |step| step.first_ms)
    }

    /// One line a step, with the milliseconds since the first step.
    pub(super) fn lines(&self) -> Vec<String> {
        self.lines_since(self.since_ms())
    }

    /// One line a step, with the milliseconds since a moment.
    pub(super) fn lines_since(&self, since_ms: u64) -> Vec<String> {
        let line = |step: &Step| {
            let (What::Start(what) | What::Look(what) | What::Deed(what) | What::End(what)) = step.what;
            let at_ms = step.first_ms.saturating_sub(since_ms);
            let Some((who, command, is_script)) = &step.by else { return format!("+{at_ms} ms {what}") };
            let script = if *is_script { " in a script" } else { "" };
            let times = if step.times > 1 { format!(", {} times", step.times) } else { String::new() };
            // Names of subcommands have a bar.
            let command = command.to_uppercase().replace('|', " ");
            format!("+{at_ms} ms {who}: {command}{script} {what}{times}")
        };
        self.steps.iter().map(line).collect()
    }
}
