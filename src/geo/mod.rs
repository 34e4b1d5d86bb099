//! Places on earth, kept as scores of a sorted set.
//!
//! A place is a cell of a grid of 2^26 by 2^26 cells ([`Cell`]). The number of the cell has 52 bits, which a
//! score keeps exactly, and places that are near each other mostly have numbers that are near each other. A
//! search ([`Area`]) therefore looks at a few ranges of scores, and then at the distance of each place there.
//!
//! Every number is computed in the order in which Redis computes it: replies show their last digits.

mod area;
mod cell;
mod nearest;
mod polygon;

pub(crate) use area::{Area, Shape};
pub(crate) use cell::Cell;
pub(crate) use nearest::sort_first;
pub(crate) use polygon::Polygon;

/// The longitudes that a place can have.
const LONGITUDES: Span = Span { min: -180.0, max: 180.0 };
/// The latitudes that a place can have. The square map of Web Mercator ends before the poles.
const LATITUDES: Span = Span { min: -85.051_128_78, max: 85.051_128_78 };
/// The latitudes of the geohashes that other systems use.
const COMMON_LATITUDES: Span = Span { min: -90.0, max: 90.0 };
/// The radius of the earth. Redis: `EARTH_RADIUS_IN_METERS`.
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Radians of a degree.
const RADIANS: f64 = std::f64::consts::PI / 180.0;

/// A range of degrees.
#[derive(Clone, Copy, Debug)]
struct Span {
    min: f64,
    max: f64,
}

impl Span {
    fn contains(self, degrees: f64) -> bool {
        (self.min..=self.max).contains(&degrees)
    }

    /// The number of the part, out of `parts` equal ones, in which a degree is. The end of the range is in a
    /// part of its own, behind the last.
    fn part_of(self, degrees: f64, parts: f64) -> u32 {
        ((degrees - self.min) / (self.max - self.min) * parts) as u32
    }

    /// Where a part, out of `parts` equal ones, begins.
    fn start_of(self, part: u32, parts: f64) -> f64 {
        self.min + f64::from(part) / parts * (self.max - self.min)
    }
}

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    /// East of Greenwich.
    pub longitude: f64,
    /// North of the equator.
    pub latitude: f64,
}

impl Position {
    /// Whether a score can keep it.
    pub(crate) fn is_valid(self) -> bool {
        LONGITUDES.contains(self.longitude) && LATITUDES.contains(self.latitude)
    }

    /// The place itself, or the nearest one on the same meridian that a score can keep.
    fn on_map(self) -> Position {
        Position { latitude: self.latitude.clamp(LATITUDES.min, LATITUDES.max), ..self }
    }

    /// The score that keeps the place.
    pub(crate) fn score(self) -> f64 {
        Cell::of(self, Cell::STEPS_MAX).bits() as f64
    }

    /// The place that a score keeps: the middle of its cell. Any score keeps some place, also one that was
    /// not made of a place.
    pub(crate) fn of_score(score: f64) -> Position {
        let area = Cell::of_bits(bits_of_score(score)).bounds();
        Position {
            longitude: middle(area.longitudes, LONGITUDES),
            latitude: middle(area.latitudes, LATITUDES),
        }
    }

    /// The distance to another place, in meters, by the haversine formula.
    pub(crate) fn distance_to(self, other: Position) -> f64 {
        let (own, others) = (self.latitude * RADIANS, other.latitude * RADIANS);
        let u = ((others - own) / 2.0).sin();
        let v = ((other.longitude * RADIANS - self.longitude * RADIANS) / 2.0).sin();
        let square = u * u + own.cos() * others.cos() * v * v;
        // Rounding may make it more than 1 on the other side of the earth. Redis has no number then.
        2.0 * EARTH_RADIUS_M * square.sqrt().min(1.0).asin()
    }

    /// The geohash that other systems know, of eleven characters. The last one says nothing.
    pub(crate) fn geohash(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::on_grid(self, LONGITUDES, COMMON_LATITUDES, Cell::STEPS_MAX).bits();
        let mut text = [ALPHABET[0]; 11];
        for (number, character) in text[..10].iter_mut().enumerate() {
            *character = ALPHABET[(bits >> (47 - 5 * number) & 0x1f) as usize];
        }
        text
    }
}

/// The middle of a part of a range, within the range.
fn middle(part: Span, range: Span) -> f64 {
    ((part.min + part.max) / 2.0).min(range.max).max(range.min)
}

/// The bits of a score, also of one that is negative or too large. C leaves those open; this is what Redis
/// makes of them on x86.
fn bits_of_score(score: f64) -> u64 {
    const HALF: f64 = (1_u64 << 63) as f64;
    let truncated = |number: f64| match number {
        number if (-HALF..HALF).contains(&number) => number as i64 as u64,
        _ => 1 << 63,
    };
    if score >= HALF { truncated(score - HALF) ^ 1 << 63 } else { truncated(score) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(longitude: f64, latitude: f64) -> Position {
        Position { longitude, latitude }
    }

    #[test]
    fn scores_and_geohashes_are_those_of_redis() {
        for (longitude, latitude, score, geohash) in [
            (13.361389, 38.115556, 3_479_099_956_230_698.0, "sqc8b49rny0"),
            (15.087269, 37.502669, 3_479_447_370_796_909.0, "sqdtr74hyu0"),
            (0.0, 0.0, 3_377_699_720_527_872.0, "s0000000000"),
            (-180.0, -85.05112878, 0.0, "00bh0hbj200"),
            (180.0, 85.05112878, 13_510_798_882_111_488.0, "bp05b5048p0"),
        ] {
            assert_eq!(at(longitude, latitude).score(), score);
            let kept = Position::of_score(score);
            assert_eq!(kept.geohash().map(char::from).iter().collect::<String>(), geohash);
            assert!((kept.longitude - longitude).abs() < 1e-5 && (kept.latitude - latitude).abs() < 1e-5);
        }
    }

    #[test]
    fn every_score_is_some_place() {
        for score in [-1.0, 1.5, 1e18, 1e19, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            assert!(Position::of_score(score).is_valid(), "{score}");
        }
        assert_eq!(bits_of_score(-1.0), u64::MAX);
        assert_eq!(bits_of_score(f64::INFINITY), 0);
        assert_eq!(bits_of_score(f64::NEG_INFINITY), 1 << 63);
    }

    #[test]
    fn a_distance_is_a_number_wherever_the_places_are() {
        for (longitude, latitude) in [(0.0, 0.0), (12.3, 45.6), (-77.7, 60.1), (179.9, -85.0), (1e-9, 33.3)] {
            let place = at(longitude, latitude);
            let opposite = at(longitude - 180.0 * longitude.signum(), -latitude);
            let distance = place.distance_to(opposite);
            assert!((distance - EARTH_RADIUS_M * std::f64::consts::PI).abs() < 1.0, "{distance}");
            assert_eq!(place.distance_to(place), 0.0);
        }
    }
}
