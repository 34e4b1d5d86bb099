//! Sets: [`basics`], and unions, intersections and differences of several ([`algebra`]).

pub(super) mod algebra;
pub(super) mod basics;
