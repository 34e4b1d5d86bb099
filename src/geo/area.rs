//! The areas that searches look at, and the cells that cover them.
//!
//! The cell of the center and its eight neighbors cover an area if a cell is about as large as the area.
//! Cells of half the size would mostly do, and that is how their size is estimated; where they do not, the
//! next larger ones are taken. Neighbors that are outside of the area are left out.

use std::sync::Arc;

use super::cell::Bounds;
use super::{Cell, EARTH_RADIUS_M, Polygon, Position, RADIANS, Span};

/// From this distance on, a cell is a quarter of the map. Redis: `MERCATOR_MAX`.
const HALF_EQUATOR_M: f64 = 20_037_726.37;
/// Meridians come closer to each other towards the poles: from here on cells are twice as wide...
const NORTHERN: f64 = 66.0;
/// ... and from here on four times.
const ARCTIC: f64 = 80.0;

/// An area on earth.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    /// From where distances are counted.
    pub center: Position,
    /// The shape of the area.
    pub shape: Shape,
    /// Meters of the unit in which the shape is measured.
    pub unit_m: f64,
}

/// A shape of an area.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// All that is so near to the center.
    Circle {
        /// The largest distance.
        radius: f64,
    },
    /// A box around the center, from west to east and from south to north.
    Box {
        /// From west to east.
        width: f64,
        /// From south to north.
        height: f64,
    },
    /// A polygon, on a flat map.
    Polygon(Arc<Polygon>),
}

/// Cells around one, in the order in which they are searched, as steps to the east and to the north.
const AROUND: [(i32, i32); 9] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

impl Area {
    /// A polygon, whose center is the mean of its corners.
    pub(crate) fn polygon(polygon: Arc<Polygon>) -> Area {
        Area { center: polygon.center(), shape: Shape::Polygon(polygon), unit_m: 1.0 }
    }

    /// The distance of a place from the center, in meters; `None` if the place is outside. Adds the number of
    /// edges of a polygon that were looked at to `compared`.
    pub(crate) fn distance(&self, place: Position, compared: &mut u64) -> Option<f64> {
        let distance = || self.center.distance_to(place);
        match &self.shape {
            Shape::Circle { radius } => Some(distance()).filter(|distance| *distance <= radius * self.unit_m),
            Shape::Box { width, height } => {
                let across = Position { longitude: self.center.longitude, ..place };
                let along = Position { latitude: self.center.latitude, ..place };
                let is_within = place.distance_to(across) <= width * self.unit_m / 2.0
                    && place.distance_to(along) <= height * self.unit_m / 2.0;
                is_within.then(distance)
            }
            Shape::Polygon(polygon) => polygon.contains(place, compared).then(distance),
        }
    }

    /// The cells in which all places of the area are.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let cell_of_center = |steps| match self.shape {
            // The center of a polygon may be at the end of the map, or at a pole and so beyond it.
            Shape::Polygon(_) => Cell::of(self.center.on_map(), steps).on_map(),
            _ => Cell::of(self.center, steps),
        };
        let mut steps = steps_for(self.reach_m(bounds), self.center.latitude);
        if steps > 1 && !is_covered(bounds, cell_of_center(steps), false) {
            steps -= 1;
        }
        if let Shape::Polygon(_) = self.shape {
            // Its center may be far from the middle between its bounds.
            while steps > 1 && !is_covered(bounds, cell_of_center(steps), true) {
                steps -= 1;
            }
        }
        let cell = cell_of_center(steps);
        let Bounds { longitudes, latitudes } = cell.bounds();
        let is_left_out = |(east, north): &(i32, i32)| {
            // With four cells in all, each is its neighbors' neighbor on both sides.
            steps > 1
                && (*north < 0 && latitudes.min < bounds.latitudes.min
                    || *north > 0 && latitudes.max > bounds.latitudes.max
                    || *east < 0 && longitudes.min < bounds.longitudes.min
                    || *east > 0 && longitudes.max > bounds.longitudes.max)
        };
        let kept = AROUND.into_iter().filter(|step| !is_left_out(step));
        let mut cells: Vec<Cell> = kept.map(|(east, north)| cell.neighbor(east, north)).collect();
        cells.dedup();
        cells
    }

    /// The degrees between which the area lies, which may be more than there are.
    fn bounds(&self) -> Bounds {
        let (width, height) = match &self.shape {
            Shape::Polygon(polygon) => return polygon.bounds(),
            Shape::Circle { radius } => (*radius, *radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Position { longitude, latitude } = self.center;
        let (width_m, height_m) = (self.unit_m * width, self.unit_m * height);
        let north = height_m / EARTH_RADIUS_M / RADIANS;
        // The edge that is nearer to a pole is the longer one in degrees.
        let edge = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = width_m / EARTH_RADIUS_M / (edge * RADIANS).cos() / RADIANS;
        Bounds {
            longitudes: Span { min: longitude - east, max: longitude + east },
            latitudes: Span { min: latitude - north, max: latitude + north },
        }
    }

    /// How far the area reaches from its center, in meters.
    fn reach_m(&self, bounds: Bounds) -> f64 {
        let Bounds { longitudes, latitudes } = bounds;
        let reach = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => {
                (width / 2.0 * (width / 2.0) + height / 2.0 * (height / 2.0)).sqrt()
            }
            Shape::Polygon(_) => [longitudes.min, longitudes.max]
                .into_iter()
                .flat_map(|longitude| [latitudes.min, latitudes.max].map(|latitude| (longitude, latitude)))
                .map(|(longitude, latitude)| self.center.distance_to(Position { longitude, latitude }))
                .fold(0.0, f64::max),
        };
        reach * self.unit_m
    }
}

/// How many steps there are down to cells of about twice a size, in meters.
fn steps_for(size_m: f64, latitude: f64) -> u32 {
    if size_m == 0.0 {
        return Cell::STEPS_MAX;
    }
    let (mut size_m, mut steps) = (size_m, -1_i32);
    while size_m < HALF_EQUATOR_M {
        size_m *= 2.0;
        steps += 1;
    }
    steps -= i32::from(latitude.abs() > NORTHERN) + i32::from(latitude.abs() > ARCTIC);
    steps.clamp(1, Cell::STEPS_MAX as i32) as u32
}

/// Whether a cell and its neighbors cover all between some bounds. A neighbor at the other end of the map
/// covers nothing here, unless `ends_cover` says that there is nothing behind the ends.
fn is_covered(bounds: Bounds, cell: Cell, ends_cover: bool) -> bool {
    let is_beyond = |east: i32, north: i32, is_beyond: &dyn Fn(Bounds) -> bool| {
        let is_end = ends_cover && cell.is_last(east, north);
        // An area may have no bounds, near a pole: what is no number is not beyond.
        !is_end && is_beyond(cell.neighbor(east, north).bounds())
    };
    let Bounds { longitudes, latitudes } = bounds;
    !(is_beyond(0, 1, &|cell| cell.latitudes.max < latitudes.max)
        || is_beyond(0, -1, &|cell| cell.latitudes.min > latitudes.min)
        || is_beyond(1, 0, &|cell| cell.longitudes.max < longitudes.max)
        || is_beyond(-1, 0, &|cell| cell.longitudes.min > longitudes.min))
}
