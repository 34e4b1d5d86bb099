//! The commands that search an area.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};

use super::UNITS;
use super::search::{Form, found, read, search, target_position, write};
use crate::commands::costs;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Command, Deprecated, Derived, Flags, Group, KeyFlags, KeySpec,
    Keyword, Prepares, Result, Run,
};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[GEORADIUS, GEORADIUSBYMEMBER, GEORADIUSBYMEMBER_RO, GEORADIUS_RO, GEOSEARCH, GEOSEARCHSTORE];

const SOURCE: KeySpec = KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS));
const TARGET_FLAGS: KeyFlags = KeyFlags::OW.and(KeyFlags::UPDATE);

const LONGITUDE: Argument = Argument::double("longitude");
const LATITUDE: Argument = Argument::double("latitude");
const RADIUS: Argument = Argument::double("radius");
const UNIT: Argument = Argument::one_of("unit", UNITS);
const WITHCOORD: Argument = Argument::word("WITHCOORD").optional();
const WITHDIST: Argument = Argument::word("WITHDIST").optional();
const WITHHASH: Argument = Argument::word("WITHHASH").optional();
const ANY: Argument = Argument::word("ANY").optional();
const COUNT: Argument =
    Argument::block("count-block", &[Argument::integer("count").token("COUNT"), ANY]).optional();
/// The same where ANY came later than the command.
const COUNT_LATER: Argument =
    Argument::block("count-block", &[Argument::integer("count").token("COUNT"), ANY.since("6.2.0")])
        .optional();
const ORDER: Argument = Argument::one_of("order", &Argument::words(["ASC", "DESC"])).optional();
const STORE: Argument = Argument::one_of(
    "store",
    &[
        Argument::new("storekey", ArgumentKind::Key).shown_as("key").token("STORE").of_spec(1),
        Argument::new("storedistkey", ArgumentKind::Key).shown_as("key").token("STOREDIST").of_spec(2),
    ],
)
.optional();
const FROM: Argument = Argument::one_of(
    "from",
    &[
        Argument::string("member").token("FROMMEMBER"),
        Argument::block("fromlonlat", &[LONGITUDE, LATITUDE]).token("FROMLONLAT"),
    ],
);
const BY: Argument = Argument::one_of(
    "by",
    &[
        Argument::block("circle", &[RADIUS.token("BYRADIUS"), UNIT]),
        Argument::block("box", &[Argument::double("width").token("BYBOX"), Argument::double("height"), UNIT]),
        Argument::block(
            "polygon",
            &[
                Argument::integer("num-vertices").token("BYPOLYGON"),
                Argument::block("vertices", &[LONGITUDE, LATITUDE]).multiple(),
            ],
        )
        .since("9.0.0"),
    ],
);

/// The key behind a word among the options of a command.
macro_rules! target {
    ($form:expr, $word:literal, $from:literal) => {
        KeySpec::keyword(
            Keyword { word: $word, from: $from, find: |request| target_position($form, request, $word) },
            TARGET_FLAGS,
        )
    };
}

/// The facts that most commands of this file share.
const GEO: Command = Command { categories: Categories::GEO, group: Group::GEO, ..Command::DEFAULTS };

const GEORADIUS: Command = Command {
    name: "georadius",
    flags: Flags::DENYOOM,
    keys: &[SOURCE, target!(Form::Radius, "STORE", 6), target!(Form::Radius, "STOREDIST", 6)],
    summary: "Returns or stores the places within a circle around a position.",
    since: "3.2.0",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    cost: costs::UP_TO_ALL_UNLESS_STORED,
    deprecated: Some(Deprecated {
        since: "6.2.0",
        replaced_by: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
    }),
    arguments: &[
        Argument::KEY,
        LONGITUDE,
        LATITUDE,
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT_LATER,
        ORDER,
        STORE,
    ],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEORADIUS Sicily 15 37 100 km", "[\"Catania\"]"),
        ("GEORADIUS Sicily 15 37 200 km STORE near", "(integer) 2"),
        ("ZRANGE near 0 -1", "[\"Palermo\", \"Catania\"]"),
    ],
    prepares: Prepares::Derived(georadius_found),
    run: Run::Write(georadius),
    ..GEO
};

fn georadius(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    write((Form::Radius, georadius_found), tx, request, reply)
}

fn georadius_found(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    found(Form::Radius, tx, request)
}

const GEORADIUS_RO: Command = Command {
    name: "georadius_ro",

    keys: &[SOURCE],
    summary: "Returns the places within a circle around a position.",
    since: "3.2.10",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    cost: costs::UP_TO_ALL,
    deprecated: Some(Deprecated { since: "6.2.0", replaced_by: "`GEOSEARCH` with the `BYRADIUS` argument" }),
    arguments: &[
        Argument::KEY,
        LONGITUDE,
        LATITUDE,
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT_LATER,
        ORDER,
    ],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEORADIUS_RO Sicily 15 37 200 km WITHDIST DESC COUNT 1", "[[\"Palermo\", \"190.4424\"]]"),
    ],
    run: Run::Read(georadius_ro),
    ..GEO
};

fn georadius_ro(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    read(Form::Radius, tx, request, reply)
}

const GEORADIUSBYMEMBER: Command = Command {
    name: "georadiusbymember",
    flags: Flags::DENYOOM,
    keys: &[SOURCE, target!(Form::RadiusByMember, "STORE", 5), target!(Form::RadiusByMember, "STOREDIST", 5)],
    summary: "Returns or stores the places within a circle around another place.",
    since: "3.2.0",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    cost: costs::UP_TO_ALL_UNLESS_STORED,
    deprecated: Some(Deprecated {
        since: "6.2.0",
        replaced_by: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
    }),
    arguments: &[
        Argument::KEY,
        Argument::string("member"),
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
        STORE,
    ],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEORADIUSBYMEMBER Sicily Palermo 200 km STOREDIST near", "(integer) 2"),
        ("ZRANGE near 0 -1", "[\"Palermo\", \"Catania\"]"),
    ],
    prepares: Prepares::Derived(georadiusbymember_found),
    run: Run::Write(georadiusbymember),
    ..GEO
};

fn georadiusbymember(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    write((Form::RadiusByMember, georadiusbymember_found), tx, request, reply)
}

fn georadiusbymember_found(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    found(Form::RadiusByMember, tx, request)
}

const GEORADIUSBYMEMBER_RO: Command = Command {
    name: "georadiusbymember_ro",

    keys: &[SOURCE],
    summary: "Returns the places within a circle around another place.",
    since: "3.2.10",
    complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
    cost: costs::UP_TO_ALL,
    deprecated: Some(Deprecated {
        since: "6.2.0",
        replaced_by: "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
    }),
    arguments: &[
        Argument::KEY,
        Argument::string("member"),
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
    ],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEORADIUSBYMEMBER_RO Sicily Palermo 100 km", "[\"Palermo\"]"),
    ],
    run: Run::Read(georadiusbymember_ro),
    ..GEO
};

fn georadiusbymember_ro(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    read(Form::RadiusByMember, tx, request, reply)
}

const GEOSEARCH: Command = Command {
    name: "geosearch",
    flags: Flags::READONLY,
    keys: &[SOURCE],
    categories: Categories::GEO.and(Categories::READ),
    group: Group::GEO,
    summary: "Returns the places within a circle, a box or a polygon.",
    since: "6.2.0",
    complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",

    cost: costs::ALL_OUTSIDE_POLYGONS,
    arguments: &[Argument::KEY, FROM, BY, ORDER, COUNT, WITHCOORD, WITHDIST, WITHHASH],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEOSEARCH Sicily FROMLONLAT 15 37 BYRADIUS 200 km ASC", "[\"Catania\", \"Palermo\"]"),
        ("GEOSEARCH Sicily FROMMEMBER Palermo BYBOX 400 100 km WITHDIST", "[[\"Palermo\", \"0.0000\"]]"),
        ("GEOSEARCH Sicily BYPOLYGON 3 14 37 16 37 15 39", "[\"Catania\"]"),
    ],
    run: Run::Server(search),
    ..Command::DEFAULTS
};

const GEOSEARCHSTORE: Command = Command {
    name: "geosearchstore",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(TARGET_FLAGS), KeySpec::range(2, 0, 1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Stores the places within a circle, a box or a polygon at another key.",
    since: "6.2.0",
    complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",

    cost: costs::ALL_CHANGING,
    arguments: &[
        Argument::new("destination", ArgumentKind::Key),
        Argument::new("source", ArgumentKind::Key).of_spec(1),
        FROM,
        BY,
        ORDER,
        COUNT,
        Argument::word("STOREDIST").optional(),
    ],
    example: &[
        ("GEOADD Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "(integer) 2"),
        ("GEOSEARCHSTORE near Sicily FROMLONLAT 15 37 BYRADIUS 100 km STOREDIST", "(integer) 1"),
        ("ZRANGE near 0 -1 WITHSCORES", "[\"Catania\", \"56.4412578701582\"]"),
    ],
    prepares: Prepares::Derived(geosearchstore_found),
    run: Run::Write(geosearchstore),
    ..GEO
};

fn geosearchstore(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    write((Form::SearchStore, geosearchstore_found), tx, request, reply)
}

fn geosearchstore_found(tx: &Transaction<'_>, request: Request<'_>) -> Result<Derived> {
    found(Form::SearchStore, tx, request)
}
