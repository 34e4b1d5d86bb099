//! The types of values. Each is one file or folder here, and one line in [`ALL`].

pub mod strings;

use crate::values::TypeFacts;

/// All types. The place of each is its kind.
pub const ALL: &[&TypeFacts] = &[&strings::FACTS];

/// The type for a type of the RDB format.
pub fn of_rdb_type(rdb_type: u8) -> Option<&'static TypeFacts> {
    ALL.iter().find(|facts| facts.rdb_types.contains(&rdb_type)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_at_the_place_of_its_kind_and_has_its_own_rdb_types() {
        for (place, facts) in ALL.iter().enumerate() {
            assert_eq!(usize::from(facts.kind), place, "{}", facts.name);
            let readers =
                |rdb_type: u8| ALL.iter().filter(|facts| facts.rdb_types.contains(&rdb_type)).count();
            assert!(facts.rdb_types.iter().all(|rdb_type| readers(*rdb_type) == 1), "{}", facts.name);
        }
    }
}
