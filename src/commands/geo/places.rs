//! Places: adding them, and what is known of them.

use crate::geo::Position;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::sorted_sets::SortedSet;

use super::{UNITS, distance_text, position, unit_m};
use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};
use crate::commands::sorted_sets::basics::{Adding, add};

pub(in crate::commands) const COMMANDS: &[Command] = &[GEOADD, GEODIST, GEOHASH, GEOPOS];

/// The facts that most commands of this file share.
const GEO: Command = Command { categories: Categories::GEO, group: Group::GEO, ..Command::DEFAULTS };

const GEOADD: Command = Command {
    name: "geoadd",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Adds places to a sorted set, or moves existing ones.",
    since: "3.2.0",
    complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
    cost: costs::BRIEF,
    arguments: &[
        Argument::KEY,
        Argument::one_of("condition", &Argument::words(["NX", "XX"])).since("6.2.0").optional(),
        Argument::pure_token("change", "CH").since("6.2.0").optional(),
        Argument::block(
            "data",
            &[Argument::double("longitude"), Argument::double("latitude"), Argument::string("member")],
        )
        .multiple(),
    ],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEODIST Sicily Palermo Catania", "\"166274.1516\""),
        ("GEOADD Sicily CH 15.087269 37.502669 Palermo", "(integer) 1"),
        ("GEODIST Sicily Palermo Catania", "\"0.0000\""),
    ],
    run: Run::Write(geoadd),
    ..GEO
};

fn geoadd(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let mut options = Adding { first: 2, ..Adding::default() };
    for option in request.from(2) {
        match option {
            _ if is_word(option, "nx") => options.nx = true,
            _ if is_word(option, "xx") => options.xx = true,
            _ if is_word(option, "ch") => options.counts_changes = true,
            _ => break,
        }
        options.first += 1;
    }
    let arguments = request.len() - options.first;
    if !arguments.is_multiple_of(3) || arguments == 0 || options.nx && options.xx {
        return Err(Error::SYNTAX);
    }
    let places = (options.first..request.len()).step_by(3);
    let places = places.map(|at| {
        let place = position(request.at(at), request.at(at + 1))?;
        Ok((place.score(), request.at(at + 2)))
    });
    add(tx, request.at(1), options, &places.collect::<Result<Vec<_>>>()?, reply)
}

const GEOPOS: Command = Command {
    name: "geopos",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the longitude and latitude of places.",
    since: "3.2.0",
    complexity: "O(1) for each member requested.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member").optional().multiple()],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo", "(integer) 1"),
        ("GEOPOS Sicily Palermo none", "[[\"13.361389338970184\", \"38.1155563954963\"], (nil)]"),
    ],
    run: Run::Read(geopos),
    ..GEO
};

fn geopos(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<SortedSet>(request.at(1))?;
    let score = |member: &[u8]| set.and_then(|set| set.score(member));
    Ok(reply.array_of(request.from(2), |member, reply| match score(member).map(Position::of_score) {
        Some(place) => {
            reply.pair(|reply| reply.double(place.longitude), |reply| reply.double(place.latitude))
        }
        None => reply.nil_array(),
    }))
}

const GEODIST: Command = Command {
    name: "geodist",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the distance between two places.",
    since: "3.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[
        Argument::KEY,
        Argument::string("member1"),
        Argument::string("member2"),
        Argument::one_of("unit", UNITS).optional(),
    ],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEODIST Sicily Palermo Catania km", "\"166.2742\""),
        ("GEODIST Sicily Palermo none", "(nil)"),
    ],
    run: Run::Read(geodist),
    ..GEO
};

fn geodist(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let unit_m = match (request.get(4), request.len()) {
        (None, _) => 1.0,
        (Some(unit), 5) => unit_m(unit)?,
        _ => return Err(Error::SYNTAX),
    };
    let Some(set) = tx.get::<SortedSet>(request.at(1))? else { return Ok(reply.nil()) };
    let place = |member| set.score(member).map(Position::of_score);
    let distance = place(request.at(2)).zip(place(request.at(3))).map(|(one, other)| one.distance_to(other));
    let text = distance.map(|distance| distance_text(distance / unit_m));
    Ok(reply.bulk_or_nil(text.as_ref().map(String::as_bytes)))
}

const GEOHASH: Command = Command {
    name: "geohash",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the standard geohashes of places.",
    since: "3.2.0",
    complexity: "O(1) for each member requested.",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("member").optional().multiple()],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo", "(integer) 1"),
        ("GEOHASH Sicily Palermo none", "[\"sqc8b49rny0\", (nil)]"),
    ],
    run: Run::Read(geohash),
    ..GEO
};

fn geohash(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let set = tx.get::<SortedSet>(request.at(1))?;
    let score = |member: &[u8]| set.and_then(|set| set.score(member));
    Ok(reply.array_of(request.from(2), |member, reply| match score(member).map(Position::of_score) {
        Some(place) => reply.bulk(&place.geohash()),
        None => reply.nil(),
    }))
}
