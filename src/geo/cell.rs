//! Cells of a grid over the earth, at any of 26 steps: each step halves the cells both ways.
//!
//! The number of a cell has one bit of the longitude and one of the latitude for each step, in turn, from the
//! coarsest step on. All places in a cell therefore have scores in one range, whatever the step of the cell.

use std::ops::Range;

use super::{LATITUDES, LONGITUDES, Position, Span};

/// One cell of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Its number from the west on. Behind the last is the cell of the end of the range alone.
    longitude: u32,
    /// Its number from the south on.
    latitude: u32,
    steps: u32,
}

/// The degrees between which a cell lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) longitudes: Span,
    pub(super) latitudes: Span,
}

impl Cell {
    /// The steps of the cell that a score keeps.
    pub(crate) const STEPS_MAX: u32 = 26;

    /// The cell of a place.
    pub(super) fn of(position: Position, steps: u32) -> Cell {
        Cell::on_grid(position, LONGITUDES, LATITUDES, steps)
    }

    /// The cell of a place on another grid.
    pub(super) fn on_grid(position: Position, longitudes: Span, latitudes: Span, steps: u32) -> Cell {
        let parts = f64::from(1 << steps);
        Cell {
            longitude: longitudes.part_of(position.longitude, parts),
            latitude: latitudes.part_of(position.latitude, parts),
            steps,
        }
    }

    /// The cell of a score.
    pub(super) fn of_bits(bits: u64) -> Cell {
        Cell { longitude: gather(bits >> 1), latitude: gather(bits), steps: Cell::STEPS_MAX }
    }

    /// Its number: a score, for a cell of as many steps.
    pub(super) fn bits(self) -> u64 {
        spread(self.latitude) | spread(self.longitude) << 1
    }

    /// The scores of all places in it.
    pub(crate) fn scores(self) -> Range<f64> {
        let align = |bits: u64| (bits << (2 * (Cell::STEPS_MAX - self.steps))) as f64;
        align(self.bits())..align(self.bits() + 1)
    }

    pub(super) fn bounds(self) -> Bounds {
        let parts = f64::from(1 << self.steps);
        let part = |span: Span, number: u32| {
            let (min, max) = (span.start_of(number, parts), span.start_of(number.wrapping_add(1), parts));
            Span { min, max }
        };
        Bounds { longitudes: part(LONGITUDES, self.longitude), latitudes: part(LATITUDES, self.latitude) }
    }

    /// The neighbor `east` cells to the east and `north` cells to the north, each -1 to 1. Behind an end of
    /// the grid it goes on at the other end.
    pub(super) fn neighbor(self, east: i32, north: i32) -> Cell {
        let move_by = |number: u32, by: i32| match by {
            0 => number,
            _ => number.wrapping_add_signed(by) & ((1 << self.steps) - 1),
        };
        Cell { longitude: move_by(self.longitude, east), latitude: move_by(self.latitude, north), ..self }
    }

    /// The last cell instead of the one behind it.
    pub(super) fn on_map(self) -> Cell {
        let last = (1 << self.steps) - 1;
        Cell { longitude: self.longitude.min(last), latitude: self.latitude.min(last), ..self }
    }

    /// Whether the neighbor is at the other end of the grid.
    pub(super) fn is_last(self, east: i32, north: i32) -> bool {
        let is_end = |number: u32, by: i32| match by {
            0 => false,
            1.. => number + 1 >= 1 << self.steps,
            _ => number == 0,
        };
        is_end(self.longitude, east) || is_end(self.latitude, north)
    }
}

/// Puts a zero in front of each bit.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in STAGES {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Takes every other bit, from the lowest on.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & STAGES[4].1;
    for (stage, (shift, _)) in STAGES.iter().enumerate().rev() {
        let mask = stage.checked_sub(1).map_or(u64::from(u32::MAX), |stage| STAGES[stage].1);
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// How far the halves of each group of bits are moved apart, and where they are then.
const STAGES: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_made_of_both_coordinates(longitude: u32, latitude: u32) {
            let cell = Cell { longitude, latitude, steps: Cell::STEPS_MAX };
            prop_assert_eq!(Cell::of_bits(cell.bits()), cell);
            for bit in 0..32 {
                prop_assert_eq!(cell.bits() >> (2 * bit) & 1, u64::from(latitude >> bit & 1));
                prop_assert_eq!(cell.bits() >> (2 * bit + 1) & 1, u64::from(longitude >> bit & 1));
            }
        }

        #[test]
        fn a_place_is_within_its_cells(
            longitude in -180.0..180.0,
            latitude in -85.0..85.0,
            steps in 1..27_u32,
        ) {
            let place = Position { longitude, latitude };
            let cell = Cell::of(place, steps);
            prop_assert!(cell.scores().contains(&place.score()));
            let Bounds { longitudes, latitudes } = cell.bounds();
            prop_assert!(longitudes.min <= longitude && longitude <= longitudes.max);
            prop_assert!(latitudes.min <= latitude && latitude <= latitudes.max);
            prop_assert_eq!(cell.neighbor(1, -1).neighbor(-1, 1), cell);
        }
    }
}
