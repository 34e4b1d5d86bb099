//! A search for places in an area: its request, and the places that it finds.

use std::sync::Arc;

use crate::cancel;
use crate::geo::{Area, Polygon, Position, Shape, sort_first};
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::sorted_sets::gathering::Gathering;
use crate::types::sorted_sets::{SortedSet, SortedSetView, score};

use super::{distance_text, long_coordinate_text, position, unit_m};
use crate::commands::args::{Options, integer, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{Context, Derive, Derived, Result};
use crate::commands::sorted_sets::derived;
use crate::commands::storing::store;

/// The forms of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// GEORADIUS: a place and a radius come first.
    Radius,
    /// GEORADIUSBYMEMBER: a member and a radius come first.
    RadiusByMember,
    /// GEOSEARCH: all that it takes are options.
    Search,
    /// GEOSEARCHSTORE: the same, and the key that is written comes first.
    SearchStore,
}

impl Form {
    /// Where the key is that is searched.
    fn source(self) -> usize {
        if self == Form::SearchStore { 2 } else { 1 }
    }

    /// Where the options begin.
    fn options(self) -> usize {
        match self {
            Form::Radius => 6,
            Form::RadiusByMember => 5,
            Form::Search => 2,
            Form::SearchStore => 3,
        }
    }

    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }
}

/// The area that a request searches, and its options.
#[derive(Debug)]
struct Search<'a> {
    from: Option<Center>,
    shape: Option<Shape>,
    /// Meters of the unit of all distances.
    unit_m: f64,
    /// The most places to return; 0 for all.
    count: usize,
    /// Whether any places are as good as the nearest ones.
    is_any: bool,
    order: Option<Order>,
    with_distances: bool,
    with_hashes: bool,
    with_coordinates: bool,
    /// The key to which the result is written rather than returned.
    target: Option<&'a [u8]>,
    /// Whether the scores there are the distances.
    stores_distances: bool,
}

/// From where distances are counted.
#[derive(Clone, Copy, Debug)]
enum Center {
    Place(Position),
    /// The place of a member; unknown if the key is absent.
    Member(Option<Position>),
}

#[derive(Clone, Copy, Debug)]
enum Order {
    NearestFirst,
    FarthestFirst,
}

/// A place that was found.
struct Found<'t> {
    member: &'t [u8],
    score: f64,
    place: Position,
    /// From the center, in meters.
    distance: f64,
}

/// How many edges of a polygon places are compared with, at most, while others wait: a tenth of a second.
const HELD_EDGES_MAX: u64 = 20_000_000;
/// The same while others go on, and a thread for long requests does it: some seconds.
const FREE_EDGES_MAX: u64 = 1_000_000_000;

/// Runs GEOSEARCH. Alone, it compares the corners of a polygon with copies of places, if they are many. In
/// EXEC and scripts, other clients wait.
///
/// # Errors
///
/// As for [`read`].
pub(super) fn search(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = context.tx.get::<SortedSet>(request.at(Form::Search.source()))?;
    let edges_max = if context.session.may_not_wait { HELD_EDGES_MAX } else { FREE_EDGES_MAX };
    Search::parse(Form::Search, false, request, set)?.answer(set, edges_max, reply)
}

/// Runs a command that only reads.
///
/// # Errors
///
/// Those of the request, and [`Error::WRONG_TYPE`], in the order in which Redis finds them.
pub(super) fn read(form: Form, tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<SortedSet>(request.at(form.source()))?;
    Search::parse(form, false, request, set)?.answer(set, HELD_EDGES_MAX, reply)
}

/// Runs a command that may write its result to a key: what `derive` derives, which is [`found`] of this form.
///
/// # Errors
///
/// As for [`read`].
pub(super) fn write(
    (form, derive): (Form, Derive),
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let options = ["store", "storedist"].iter().filter_map(|word| target_position(form, request, word));
    let target = if form == Form::SearchStore { Some(1) } else { options.max() };
    let Some(target) = target else {
        let set = tx.get::<SortedSet>(request.at(form.source()))?;
        return Search::parse(form, true, request, set)?.answer(set, HELD_EDGES_MAX, reply);
    };
    let event = if form.is_search() { "geosearchstore" } else { "georadiusstore" };
    store(tx, request, (derive, request.at(target)), event, reply)
}

/// Derives the sorted set that a request stores.
///
/// # Errors
///
/// As for [`read`].
pub(super) fn found(form: Form, tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    let set = tx.get::<SortedSet>(request.at(form.source()))?;
    let search = Search::parse(form, true, request, set)?;
    let found = search.find(set, HELD_EDGES_MAX)?;
    let mut gathering = Gathering::with_room(found.len());
    for Found { member, score, distance, .. } in &found {
        gathering.insert(member, if search.stores_distances { distance / search.unit_m } else { *score });
    }
    Ok(derived(tx, gathering))
}

impl<'a> Search<'a> {
    /// Reads a request; `set` is what it searches. `may_store` is whether it may write.
    fn parse(
        form: Form,
        may_store: bool,
        request: Request<'a>,
        set: Option<SortedSetView<'_>>,
    ) -> Result<Search<'a>> {
        let mut search = Search {
            from: None,
            shape: None,
            unit_m: 1.0,
            count: 0,
            is_any: false,
            order: None,
            with_distances: false,
            with_hashes: false,
            with_coordinates: false,
            target: (form == Form::SearchStore).then(|| request.at(1)),
            stores_distances: false,
        };
        match form {
            Form::Radius => {
                search.from = Some(Center::Place(position(request.at(2), request.at(3))?));
                search.set_circle(request.at(4), request.at(5))?;
            }
            // As in Redis, the radius of a search in nothing is never read.
            Form::RadiusByMember if set.is_none() => {}
            Form::RadiusByMember => {
                search.from = Some(Center::of_member(set, request.at(2))?);
                search.set_circle(request.at(3), request.at(4))?;
            }
            Form::Search | Form::SearchStore => {}
        }
        let mut options = Options::new(request, form.options());
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "withdist") => search.with_distances = true,
                _ if is_word(option, "withhash") => search.with_hashes = true,
                _ if is_word(option, "withcoord") => search.with_coordinates = true,
                _ if is_word(option, "any") => search.is_any = true,
                _ if is_word(option, "asc") => search.order = Some(Order::NearestFirst),
                _ if is_word(option, "desc") => search.order = Some(Order::FarthestFirst),
                _ if is_word(option, "count") => search.count = count(options.value()?)?,
                _ if form == Form::SearchStore && is_word(option, "storedist") => {
                    search.stores_distances = true;
                }
                _ if form.is_search() => search.parse_area(option, &mut options, set)?,
                _ if may_store && is_word(option, "store") => {
                    (search.target, search.stores_distances) = (Some(options.value()?), false);
                }
                _ if may_store && is_word(option, "storedist") => {
                    (search.target, search.stores_distances) = (Some(options.value()?), true);
                }
                _ => return Err(Error::SYNTAX),
            }
        }
        search.check(form, request)?;
        Ok(search)
    }

    /// Reads an option that says what is searched.
    fn parse_area(
        &mut self,
        option: &[u8],
        options: &mut Options<'a>,
        set: Option<SortedSetView<'_>>,
    ) -> Result<()> {
        match (&self.from, &self.shape) {
            (None | Some(Center::Member(_)), None | Some(Shape::Circle { .. } | Shape::Box { .. }))
                if is_word(option, "frommember") =>
            {
                self.from = Some(Center::of_member(set, options.value()?)?);
            }
            (None | Some(Center::Place(_)), None | Some(Shape::Circle { .. } | Shape::Box { .. }))
                if is_word(option, "fromlonlat") =>
            {
                let (longitude, latitude) = (options.value()?, options.value()?);
                self.from = Some(Center::Place(position(longitude, latitude)?));
            }
            (_, None | Some(Shape::Circle { .. })) if is_word(option, "byradius") => {
                let (radius, unit) = (options.value()?, options.value()?);
                self.set_circle(radius, unit)?;
            }
            (_, None | Some(Shape::Box { .. })) if is_word(option, "bybox") => {
                let (width, height, unit) = (options.value()?, options.value()?, options.value()?);
                self.set_box(width, height, unit)?;
            }
            (None, None | Some(Shape::Polygon(_))) if is_word(option, "bypolygon") && options.left() > 1 => {
                self.shape = Some(polygon(options)?);
            }
            _ => return Err(Error::SYNTAX),
        }
        Ok(())
    }

    fn set_circle(&mut self, radius: &[u8], unit: &[u8]) -> Result<()> {
        let radius = score::parse(radius).ok_or(Error::fixed("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(Error::fixed("ERR radius cannot be negative"));
        }
        (self.shape, self.unit_m) = (Some(Shape::Circle { radius }), unit_m(unit)?);
        Ok(())
    }

    fn set_box(&mut self, width: &[u8], height: &[u8], unit: &[u8]) -> Result<()> {
        let width = score::parse(width).ok_or(Error::fixed("ERR need numeric width"))?;
        let height = score::parse(height).ok_or(Error::fixed("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(Error::fixed("ERR height or width cannot be negative"));
        }
        (self.shape, self.unit_m) = (Some(Shape::Box { width, height }), unit_m(unit)?);
        Ok(())
    }

    /// Refuses options that contradict each other, and requests that say too little.
    fn check(&self, form: Form, request: Request<'_>) -> Result<()> {
        let adds = self.with_distances || self.with_hashes || self.with_coordinates;
        if self.target.is_some() && adds {
            return Err(Error::fixed(match form {
                Form::SearchStore => {
                    "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
                }
                _ => {
                    "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
                }
            }));
        }
        let one_of = |text| Err(Error::quoting(text, request.name(), ""));
        let is_polygon = matches!(self.shape, Some(Shape::Polygon(_)));
        if form.is_search() && self.from.is_none() && !is_polygon {
            return one_of("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ");
        }
        if form.is_search() && self.shape.is_none() {
            return one_of("ERR exactly one of BYRADIUS and BYBOX can be specified for ");
        }
        if self.is_any && self.count == 0 {
            return Err(Error::fixed("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// The area, unless the key is absent and no place is known.
    fn area(&self) -> Option<Area> {
        let center = match self.from {
            Some(Center::Place(place) | Center::Member(Some(place))) => Some(place),
            _ => None,
        };
        match self.shape.clone()? {
            Shape::Polygon(polygon) => Some(Area::polygon(polygon)),
            shape => Some(Area { center: center?, shape, unit_m: self.unit_m }),
        }
    }

    /// The places that the request asks for, in the order of the reply. They are compared with at most
    /// `edges_max` edges of a polygon.
    fn find<'t>(&self, set: Option<SortedSetView<'t>>, edges_max: u64) -> Result<Vec<Found<'t>>> {
        const TOO_MANY: Error =
            Error::fixed("ERR the polygon has too many edges at the latitudes of too many places");
        let Some((set, area)) = set.zip(self.area()) else { return Ok(Vec::new()) };
        let count = if self.count == 0 { usize::MAX } else { self.count };
        let places = area.cells().into_iter().flat_map(|cell| {
            let scores = cell.scores();
            set.range(set.first_at_least(scores.start)..set.first_at_least(scores.end))
        });
        let mut compared = 0;
        let found = places.filter_map(|(member, score)| {
            let place = Position::of_score(score);
            let distance = area.distance(place, &mut compared);
            if compared > 0 {
                // Polygons may have many edges.
                cancel::check();
            }
            if compared > edges_max {
                return Some(Err(TOO_MANY));
            }
            distance.map(|distance| Ok(Found { member, score, place, distance }))
        });
        let found = found.take(if self.is_any { count } else { usize::MAX });
        let mut found = found.collect::<Result<Vec<Found<'_>>>>()?;
        // The nearest are meant where there is a limit.
        let order = self.order.or((self.count > 0 && !self.is_any).then_some(Order::NearestFirst));
        let compare = |one: &Found<'_>, other: &Found<'_>| one.distance.total_cmp(&other.distance);
        match order {
            None => {}
            Some(Order::NearestFirst) => sort_first(&mut found, count, compare),
            Some(Order::FarthestFirst) => sort_first(&mut found, count, |one, other| compare(other, one)),
        }
        found.truncate(count);
        Ok(found)
    }

    /// Replies with the places.
    fn answer(&self, set: Option<SortedSetView<'_>>, edges_max: u64, reply: Reply<'_>) -> Result {
        let found = self.find(set, edges_max)?;
        let additions = [self.with_distances, self.with_hashes, self.with_coordinates];
        // Only Valkey has polygons, and it prints all digits.
        let is_polygon = matches!(self.shape, Some(Shape::Polygon(_)));
        let parts_of_each = 1 + additions.into_iter().filter(|is_wanted| *is_wanted).count();
        reply.nested(|parts| {
            parts.array(found.len());
            for Found { member, score, place, distance } in &found {
                if parts_of_each > 1 {
                    parts.array(parts_of_each);
                }
                let _sent = parts.part().bulk(member);
                if self.with_distances {
                    let _sent = parts.part().bulk(distance_text(distance / self.unit_m).as_bytes());
                }
                if self.with_hashes {
                    let _sent = parts.part().integer(*score as i64);
                }
                if self.with_coordinates {
                    parts.array(2);
                    for degrees in [place.longitude, place.latitude] {
                        let _sent = match is_polygon {
                            true => parts.part().decimal(&long_coordinate_text(degrees)),
                            false => parts.part().double(degrees),
                        };
                    }
                }
            }
            Ok(())
        })
    }
}

impl Center {
    /// The place of a member, which must be there if the key is.
    fn of_member(set: Option<SortedSetView<'_>>, member: &[u8]) -> Result<Center> {
        let Some(set) = set else { return Ok(Center::Member(None)) };
        let score = set.score(member).ok_or(Error::fixed("ERR could not decode requested zset member"))?;
        Ok(Center::Member(Some(Position::of_score(score))))
    }
}

fn count(text: &[u8]) -> Result<usize> {
    let count = usize::try_from(integer(text)?).ok().filter(|count| *count > 0);
    count.ok_or(Error::fixed("ERR COUNT must be > 0"))
}

/// Reads the number of the corners of a polygon, and the corners.
fn polygon(options: &mut Options<'_>) -> Result<Shape> {
    let corners = integer(options.value()?).ok().filter(|corners| i32::try_from(*corners).is_ok());
    let corners = corners.ok_or(Error::fixed("ERR invalid number of vertices"))?;
    let corners = usize::try_from(corners).ok().filter(|corners| (3..=options.left() / 2).contains(corners));
    let corners = corners.ok_or(Error::fixed("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"))?;
    let corners = (0..corners).map(|_| position(options.value()?, options.value()?));
    let corners = corners.collect::<Result<Vec<_>>>()?;
    Ok(Shape::Polygon(Arc::new(Polygon::new(&corners))))
}

/// The position of the key behind the last of these words among the options of a request.
pub(super) fn target_position(form: Form, request: Request<'_>, word: &str) -> Option<usize> {
    let (mut at, mut target) = (form.options(), None);
    while let Some(option) = request.get(at) {
        let is_target = is_word(option, word);
        if is_target && at + 1 < request.len() {
            target = Some(at + 1);
        }
        let has_value = is_target || ["count", "store", "storedist"].iter().any(|word| is_word(option, word));
        at += 1 + usize::from(has_value);
    }
    target
}
