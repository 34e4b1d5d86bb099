//! Sets of flags with names.

/// Declares a set of flags with the names that Redis prints for them, in its order.
macro_rules! flag_set {
    ($(#[$about:meta])* $set:ident: $($(#[$flag_about:meta])* $flag:ident = $name:literal,)+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            /// None of them.
            pub const NONE: $set = $set(0);
            $crate::flag_set::flag_set!(@constants $set 0; $($(#[$flag_about])* $flag,)+);
            /// The names of all flags, in the order of Redis.
            pub const NAMES: &[&str] = &[$($name),+];

            /// The flags of both sets.
            pub const fn and(self, other: $set) -> $set {
                $set(self.0 | other.0)
            }

            /// Whether all of `other` are among these.
            #[inline]
            pub const fn contains(self, other: $set) -> bool {
                self.0 & other.0 == other.0
            }

            /// The names that Redis prints, in its order.
            pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
                (0..).zip($set::NAMES).filter(move |(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| *name)
            }
        }
    };
    (@constants $set:ident $bit:expr; $(#[$about:meta])* $flag:ident, $($rest:tt)*) => {
        $(#[$about])*
        pub const $flag: $set = $set(1 << ($bit));
        $crate::flag_set::flag_set!(@constants $set $bit + 1; $($rest)*);
    };
    (@constants $set:ident $bit:expr;) => {};
}

pub(crate) use flag_set;
