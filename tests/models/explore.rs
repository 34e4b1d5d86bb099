//! Walks through every order in which the steps of an algorithm can happen, and describes what it found.
//!
//! The walk goes breadth first, so the story it finds is a shortest one; and it goes on until it has found
//! one or seen every state that can be reached, so where it finds none there is none.

use std::fmt::{self, Debug, Display, Formatter, Write};
use std::hash::Hash;
use std::thread;

use stateright::{Checker, Expectation, Model, Path, Property};

/// One of those who want the lock: counted from 0, called C1, C2 … as in the documents.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client(pub(crate) usize);

impl Client {
    /// The first so many.
    pub(crate) fn first(count: usize) -> impl Iterator<Item = Client> {
        (0..count).map(Client)
    }
}

impl Display for Client {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "C{}", self.0 + 1)
    }
}

/// What the walk through a model found.
#[must_use = "a walk proves nothing until its expected end is checked"]
pub(crate) struct Explored {
    question: &'static str,
    expectation: Expectation,
    states: usize,
    story: Option<Vec<String>>,
}

/// Walks through all that can happen in a model, until what must always be so is not, or what may happen
/// sometimes has happened.
pub(crate) fn explore<M>(model: M, property: Property<M>) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + 'static,
{
    let (question, expectation) = (property.name, property.expectation.clone());
    let checker = Asked { model, property }.checker().spawn_bfs().join();
    assert!(checker.is_done(), "the walk ended early");
    let story = checker.discovery(question).map(|path| in_words(&checker.model().model, path));
    let explored = Explored { question, expectation, states: checker.unique_state_count(), story };
    explored.print();
    explored
}

/// Each step as the model words it.
fn in_words<M>(model: &M, path: Path<M::State, M::Action>) -> Vec<String>
where
    M: Model,
    M::State: Debug,
{
    let steps = path.into_vec().into_iter();
    steps.filter_map(|(state, step)| model.format_step(&state, step?)).collect()
}

impl Explored {
    /// What must always be so is so, in every state that can be reached.
    #[track_caller]
    pub(crate) fn holds(self) {
        assert_eq!(self.expectation, Expectation::Always);
        let story = self.story.unwrap_or_default();
        assert!(story.is_empty(), "disproved: {}\n{}", self.question, story.join("\n"));
    }

    /// What must always be so is not; answers the shortest way to where it is not, step by step.
    #[track_caller]
    pub(crate) fn breaks(self) -> Vec<String> {
        assert_eq!(self.expectation, Expectation::Always);
        self.story.unwrap_or_else(|| panic!("holds in all {} states: {}", self.states, self.question))
    }

    /// It can happen; answers the shortest way to it, step by step.
    #[track_caller]
    pub(crate) fn happens(self) -> Vec<String> {
        assert_eq!(self.expectation, Expectation::Sometimes);
        self.story.unwrap_or_else(|| panic!("in none of {} states: {}", self.states, self.question))
    }

    /// Shown by `cargo test --test models -- --nocapture`.
    fn print(&self) {
        let test = thread::current().name().unwrap_or_default().to_owned();
        let Self { question, expectation, states, story } = self;
        let verdict = match (expectation, story) {
            (Expectation::Sometimes, Some(_)) => "happens",
            (Expectation::Sometimes, None) => "never happens",
            (_, Some(_)) => "is disproved",
            (_, None) => "holds in all there are",
        };
        let mut text = format!("{test}\n  \"{question}\" {verdict} ({states} states seen)\n");
        for (number, step) in story.iter().flatten().enumerate() {
            let _ = writeln!(text, "  {:>4}. {step}", number + 1);
        }
        println!("{text}");
    }
}

/// A model with a single question: the checker keeps the first story, which is the shortest, of one property
/// only; of several it keeps the last that it met before it had them all.
struct Asked<M: Model> {
    model: M,
    property: Property<M>,
}

impl<M: Model> Model for Asked<M> {
    type State = M::State;
    type Action = M::Action;

    fn init_states(&self) -> Vec<M::State> {
        self.model.init_states()
    }

    fn actions(&self, state: &M::State, actions: &mut Vec<M::Action>) {
        self.model.actions(state, actions);
    }

    fn next_state(&self, state: &M::State, action: M::Action) -> Option<M::State> {
        self.model.next_state(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let Property { expectation, name, .. } = self.property.clone();
        vec![Property { expectation, name, condition: |asked, state| asked.holds_in(state) }]
    }
}

impl<M: Model> Asked<M> {
    fn holds_in(&self, state: &M::State) -> bool {
        (self.property.condition)(&self.model, state)
    }
}
