//! Polygons on a flat map, prepared so that a place is compared with few of their edges.
//!
//! A place is within a polygon if a line from it to the east crosses an odd number of edges. Such a line can
//! only cross edges that have one end north of it, and the other not. The edges lie in the order of their
//! southern ends, as the nodes of a balanced tree whose root is in the middle, and each node knows the
//! northern end of all edges below it. So a place is compared with the edges at its latitude, and with one
//! more for each level of the tree: with the coast of a country, some dozens of some ten thousand.

use super::cell::Bounds;
use super::{Position, RADIANS, Span};

/// A polygon that is ready for many comparisons.
#[derive(Clone, Debug)]
pub(crate) struct Polygon {
    /// In the order of their southern ends.
    edges: Box<[Edge]>,
    bounds: Bounds,
    center: Position,
}

/// An edge, with what the tree needs.
#[derive(Clone, Copy, Debug)]
struct Edge {
    one: Position,
    other: Position,
    /// The northern end of this edge and of all below it in the tree.
    north: f64,
}

impl Edge {
    fn south(&self) -> f64 {
        self.one.latitude.min(self.other.latitude)
    }

    /// Whether a line from a place to the east crosses the edge.
    fn is_crossed(&self, place: Position) -> bool {
        let Edge { one, other, .. } = self;
        (one.latitude > place.latitude) != (other.latitude > place.latitude)
            && place.longitude
                < (other.longitude - one.longitude) * (place.latitude - one.latitude)
                    / (other.latitude - one.latitude)
                    + one.longitude
    }
}

impl Polygon {
    /// The polygon with these corners. There must be corners.
    pub(crate) fn new(corners: &[Position]) -> Polygon {
        let starts = corners.iter().skip(corners.len() - 1).chain(corners);
        let edge = |(one, other): (&Position, &Position)| Edge {
            one: *one,
            other: *other,
            north: one.latitude.max(other.latitude),
        };
        let mut edges: Box<[Edge]> = corners.iter().zip(starts).map(edge).collect();
        edges.sort_unstable_by(|one, other| one.south().total_cmp(&other.south()));
        grow(&mut edges);
        Polygon { edges, bounds: bounds_of(corners), center: mean(corners) }
    }

    /// The place in the middle of the corners.
    pub(crate) fn center(&self) -> Position {
        self.center
    }

    /// The degrees between which it lies.
    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether a place is within it. Adds the number of edges that were looked at to `compared`.
    pub(crate) fn contains(&self, place: Position, compared: &mut u64) -> bool {
        /// A crossing lies this far beyond the ends of its edge at most, as it is rounded.
        const ROUNDED_DEGREES: f64 = 1e-9;
        let Bounds { longitudes, latitudes } = self.bounds;
        let is_far = place.latitude < latitudes.min
            || place.latitude > latitudes.max
            || place.longitude < longitudes.min - ROUNDED_DEGREES
            || place.longitude > longitudes.max + ROUNDED_DEGREES;
        !is_far && crossings(&self.edges, place, compared) % 2 == 1
    }
}

/// Sets in each node of a tree how far north the edges below it reach; returns the maximum of all.
fn grow(edges: &mut [Edge]) -> f64 {
    let middle = edges.len() / 2;
    let Some((souther, [root, norther @ ..])) = edges.split_at_mut_checked(middle) else {
        return f64::NEG_INFINITY;
    };
    root.north = root.north.max(grow(souther)).max(grow(norther));
    root.north
}

/// The edges of a tree that a line from a place to the east crosses.
fn crossings(edges: &[Edge], place: Position, compared: &mut u64) -> usize {
    /// So few edges are looked at one by one.
    const EDGES_FEW: usize = 16;
    let (mut edges, mut count) = (edges, 0);
    while edges.len() > EDGES_FEW {
        let (souther, [root, norther @ ..]) = edges.split_at(edges.len() / 2) else { break };
        *compared += 1;
        if root.north <= place.latitude {
            return count;
        }
        count += crossings(souther, place, compared);
        if root.south() > place.latitude {
            return count;
        }
        count += usize::from(root.is_crossed(place));
        edges = norther;
    }
    *compared += edges.len() as u64;
    count + edges.iter().filter(|edge| edge.is_crossed(place)).count()
}

fn bounds_of(corners: &[Position]) -> Bounds {
    let span = |degrees: fn(&Position) -> f64| Span {
        min: corners.iter().map(degrees).fold(f64::INFINITY, f64::min),
        max: corners.iter().map(degrees).fold(f64::NEG_INFINITY, f64::max),
    };
    Bounds { longitudes: span(|corner| corner.longitude), latitudes: span(|corner| corner.latitude) }
}

/// The middle of some places: the sum of their directions from the middle of the earth.
fn mean(places: &[Position]) -> Position {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for place in places {
        let (longitude, latitude) = (place.longitude * RADIANS, place.latitude * RADIANS);
        x += latitude.cos() * longitude.cos();
        y += latitude.cos() * longitude.sin();
        z += latitude.sin();
    }
    Position {
        longitude: f64::atan2(y, x) / RADIANS,
        latitude: f64::atan2(z, (x * x + y * y).sqrt()) / RADIANS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the place with each edge, as Valkey does.
    fn is_within(place: Position, corners: &[Position]) -> bool {
        let starts = corners.iter().skip(corners.len() - 1).chain(corners);
        let edges = corners.iter().zip(starts);
        let edges = edges.map(|(one, other)| Edge { one: *one, other: *other, north: 0.0 });
        edges.filter(|edge| edge.is_crossed(place)).count() % 2 == 1
    }

    #[test]
    fn a_place_is_within_a_polygon_as_if_it_was_compared_with_each_edge() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..400 {
            // On a coarse grid places lie on edges and corners, too.
            let steps = [3.0, 10.0, 1e6][round % 3];
            let mut place = || Position {
                longitude: (random.f64() * steps).round() / steps * 4.0 - 2.0,
                latitude: (random.f64() * steps).round() / steps * 4.0 - 2.0,
            };
            let corners: Vec<Position> = (0..3 + round % 100).map(|_| place()).collect();
            let polygon = Polygon::new(&corners);
            for place in (0..200).map(|_| place()).chain(corners.iter().copied()) {
                assert_eq!(
                    polygon.contains(place, &mut 0),
                    is_within(place, &corners),
                    "{place:?} {corners:?}"
                );
            }
        }
    }

    #[test]
    fn a_place_is_compared_with_few_edges_of_a_round_polygon() {
        const CORNERS: usize = 100_000;
        let corner = |number: usize| {
            let angle = number as f64 / CORNERS as f64 * std::f64::consts::TAU;
            Position { longitude: 10.0 * angle.cos(), latitude: 10.0 * angle.sin() }
        };
        let polygon = Polygon::new(&(0..CORNERS).map(corner).collect::<Vec<_>>());
        let mut compared = 0;
        for number in 0..1000 {
            let longitude = f64::from(number) / 50.0 - 10.0;
            let place = Position { longitude, latitude: 3.3 };
            assert_eq!(polygon.contains(place, &mut compared), longitude.abs() < 9.44, "{longitude}");
        }
        assert!(compared < 1000 * 100, "{compared}");
        // At a far place there is nothing to compare.
        let before = compared;
        assert!(!polygon.contains(Position { longitude: 11.0, latitude: 0.0 }, &mut compared));
        assert_eq!(compared, before);
    }
}
