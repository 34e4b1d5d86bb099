//! The types of values. Each is one file or folder here, and one line in [`ALL`].

pub(crate) mod hashes;
pub(crate) mod lists;
pub(crate) mod sets;
pub(crate) mod sorted_sets;
pub(crate) mod streams;
pub(crate) mod strings;

#[cfg(test)]
mod snapshots;

use crate::values::TypeFacts;

/// The facts of every type.
pub const ALL: &[&TypeFacts] =
    &[&strings::FACTS, &lists::FACTS, &sets::FACTS, &sorted_sets::FACTS, &hashes::FACTS, &streams::FACTS];

/// The type for a type of the RDB format.
pub(crate) fn of_rdb_type(rdb_type: u8) -> Option<&'static TypeFacts> {
    ALL.iter().find(|facts| facts.rdb_types.contains(&rdb_type)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::values::KINDS;

    #[test]
    fn each_type_has_its_own_kind_and_rdb_types() {
        for facts in ALL {
            assert_eq!(ALL.iter().filter(|other| other.kind == facts.kind).count(), 1, "{}", facts.name);
            let readers =
                |rdb_type: u8| ALL.iter().filter(|facts| facts.rdb_types.contains(&rdb_type)).count();
            assert!(facts.rdb_types.iter().all(|rdb_type| readers(*rdb_type) == 1), "{}", facts.name);
            assert!(facts.kind < KINDS as u8, "{}", facts.name);
        }
    }

    #[test]
    fn limits_are_those_of_parameters_that_there_are() {
        for facts in ALL {
            // A type that is never packed asks for none.
            let _limit = (facts.limit)(&|name| {
                let value = Config::new().integer(name);
                assert_ne!(value, 0, "{name}");
                value
            });
        }
    }
}
