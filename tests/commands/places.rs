//! Places on earth: who is near whom, and in which area.

use support::client::{Client, Reply, request};
use support::server::Server;

fn client() -> Client {
    Server::start().into_client()
}

/// The names that a search replies with.
#[track_caller]
fn names(client: &mut Client, line: &str) -> Vec<String> {
    client.line(line).items().iter().map(|item| item.to_string().replace('"', "")).collect()
}

#[test]
fn the_nearest_taxi_is_found_and_moves() {
    let mut client = client();
    client.line("GEOADD taxis 13.40 52.52 ann 13.45 52.51 bob 13.29 52.50 eve").is(3);
    let nearest = "GEOSEARCH taxis FROMLONLAT 13.41 52.52 BYRADIUS 5 km COUNT 1";
    assert_eq!(names(&mut client, nearest), ["ann"]);
    client.line("GEOADD taxis XX CH 13.30 52.50 ann").is(1);
    assert_eq!(names(&mut client, nearest), ["bob"]);
    let around = "GEOSEARCH taxis FROMMEMBER ann BYBOX 2 2 km ASC WITHDIST";
    assert_eq!(client.line(around).reply().to_string(), r#"[["ann", "0.0000"], ["eve", "0.6771"]]"#);
    client.line("ZREM taxis eve").is(1);
    assert_eq!(names(&mut client, around), ["[ann, 0.0000]"]);
}

#[test]
fn any_is_satisfied_with_the_first() {
    let mut client = client();
    for number in 0..200 {
        client
            .cmd([
                "GEOADD",
                "grid",
                &format!("{}", number % 20),
                &(number / 20).to_string(),
                &number.to_string(),
            ])
            .is(1);
    }
    let all = "GEOSEARCH grid FROMLONLAT 10 5 BYRADIUS 9000 km";
    assert_eq!(names(&mut client, all).len(), 200);
    assert_eq!(names(&mut client, &format!("{all} COUNT 7 ANY")).len(), 7);
    let nearest = names(&mut client, &format!("{all} COUNT 7"));
    assert_eq!(nearest[0], "110");
    assert_eq!(nearest, names(&mut client, &format!("{all} ASC"))[..7]);
    let farthest = names(&mut client, &format!("{all} DESC"));
    assert_eq!(names(&mut client, &format!("{all} COUNT 1 DESC")), farthest[..1]);
}

#[test]
fn a_place_on_the_other_side_of_the_earth_has_a_distance() {
    // Redis has no number there, and ends when it is to store that.
    let mut client = client();
    for (longitude, latitude) in [(1, 0), (10, 33), (77, 60), (120, 5), (-45, 71), (179, 80)] {
        // What is exactly at 180 degrees is found by no search, as in Redis.
        let opposite = if longitude > 0 { longitude - 180 } else { longitude + 180 };
        client
            .line(&format!("GEOADD ends {longitude} {latitude} here {opposite} {} there", -latitude))
            .ignored();
        client.line("GEOSEARCHSTORE distances ends FROMMEMBER here BYRADIUS 21000 km STOREDIST").is(2);
        let distance: f64 = client.line("GEODIST ends here there km").text().parse().expect("a number");
        assert!((20_020.0..20_021.0).contains(&distance), "{distance}");
    }
}

#[test]
fn the_dateline_and_the_poles_are_no_ends() {
    let mut client = client();
    client.line("GEOADD islands 179.5 36 west -179.5 36 east").is(2);
    let search = "GEOSEARCH islands FROMLONLAT 179 37 BYBOX 400 400 km ASC";
    assert_eq!(names(&mut client, search), ["west", "east"]);
    client.line("GEOADD islands 1 85 polar 179 85.05 beyond").is(2);
    assert_eq!(names(&mut client, "GEOSEARCH islands FROMMEMBER polar BYRADIUS 1200 km").len(), 2);
}

// What follows is Valkey's, observed there by its own tests.

#[test]
fn a_polygon_may_have_any_form() {
    let mut client = client();
    for (longitude, latitude, name) in [
        ("151.20932132005692", "-33.877723137822436", "elizabeth"),
        ("151.2119820713997", "-33.87697539508043", "connaught"),
        ("151.2119820713997", "-33.87156123068408", "james"),
        ("151.2229523062706", "-33.883973760201364", "oxford"),
        ("151.22852593660355", "-33.88116782387797", "goodhope"),
        ("151.2224105000496", "-33.87544442350019", "kings"),
        ("151.22953444719315", "-33.874838625143106", "oval"),
    ] {
        client.cmd(["GEOADD", "sydney", longitude, latitude, name]).is(1);
    }
    const HOOK: &str = "BYPOLYGON 11 151.21619137411474 -33.869643764947696 151.20408853981647 \
         -33.87845382042545 \
         151.2123775086366 -33.87864711938855 151.21046943124387 -33.87588862400425 151.21701035939626 \
         -33.874286511854834 151.2239557405701 -33.8735722632175 151.22495056246407 -33.87893571656996 \
         151.2274447496748 -33.882307713036354 151.23212935868654 -33.88136096120022 151.23097291274465 \
         -33.87456240592362 151.22475424781445 -33.87099633192101";
    let unordered = names(&mut client, &format!("GEOSEARCH sydney {HOOK}"));
    assert_eq!(unordered, ["goodhope", "oval", "elizabeth"]);
    let expected = "[[\"elizabeth\", \"1035.7735\", [\"151.20932132005691528\", \"-33.87772313782243572\"]], \
         [\"goodhope\", \"929.4979\", [\"151.22852593660354614\", \"-33.88116782387797343\"]], \
         [\"oval\", \"858.3013\", [\"151.22953444719314575\", \"-33.87483862514310573\"]]]";
    let found = client.line(&format!("GEOSEARCH sydney {HOOK} WITHDIST WITHCOORD DESC"));
    assert_eq!(found.reply().to_string(), expected);
    client.line(&format!("GEOSEARCHSTORE near sydney {HOOK} ASC STOREDIST COUNT 2")).is(2);
    assert_eq!(names(&mut client, "ZRANGE near 0 -1"), ["oval", "goodhope"]);
    // A star, whose edges cross each other.
    const STAR: &str = "BYPOLYGON 5 151.2154285314146 -33.867438205607186 151.20024487595015 \
         -33.88138572784347 \
         151.2374118848648 -33.87601765283626 151.19695829592922 -33.87272872054441 151.2278336546125 \
         -33.88345323146266";
    let unordered = names(&mut client, &format!("GEOSEARCH sydney {STAR}"));
    assert_eq!(unordered, ["elizabeth", "james", "kings"]);
}

#[test]
fn a_polygon_finds_all_that_is_in_it_wherever_it_lies() {
    let mut client = client();
    let mut places = 0;
    for longitude in (-175..=175).step_by(25) {
        for latitude in (-80..=80).step_by(20) {
            let name = format!("{longitude},{latitude}");
            client.cmd(["GEOADD", "world", &longitude.to_string(), &latitude.to_string(), &name]).is(1);
            places += 1;
        }
    }
    for (polygon, expected) in [
        ("4 -179 -84 179 -84 179 84 -179 84", places),
        // Its center is at a pole, which is no place, and it lies around it.
        ("4 -180 75 180 75 180 85 -180 85", 15),
        ("4 -180 -85 180 -85 180 -75 -180 -75", 15),
        // A thin one along the dateline, and one along the equator.
        ("4 160 -84 180 -84 180 84 160 84", 9),
        ("4 -180 -1 180 -1 180 1 -180 1", 15),
        ("3 -10 -10 10 -10 0 10", 1),
    ] {
        let found = names(&mut client, &format!("GEOSEARCH world BYPOLYGON {polygon}"));
        assert_eq!(found.len(), expected, "{polygon}: {found:?}");
    }
}

#[test]
fn corners_are_read_before_anything_is_made_room_for() {
    let mut client = client();
    client.line("GEOADD g 1 1 a").is(1);
    let place = client.line("GEOPOS g a").reply();
    for count in ["2147483647", "1000000", "4", "-3", "0"] {
        client
            .line(&format!("GEOSEARCH g BYPOLYGON {count} 0 0 1 0 0 1"))
            .is_error("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices");
    }
    for count in ["2147483648", "9223372036854775808", "x", ""] {
        client
            .cmd(["GEOSEARCH", "g", "BYPOLYGON", count, "0", "0", "1", "0", "0", "1"])
            .is_error("ERR invalid number of vertices");
    }
    client.line("GEOPOS g a").is(place);
    client.line("GEOSEARCH g BYPOLYGON 3 0 0 3 0 0 3").is(Reply::Array(vec![Reply::from("a")]));
}

/// A polygon around a point as the words of BYPOLYGON.
fn round_polygon(corners: usize) -> Vec<String> {
    let corner = |number: usize| {
        let angle = number as f64 / corners as f64 * std::f64::consts::TAU;
        [format!("{:.9}", 10.0 * angle.cos()), format!("{:.9}", 10.0 * angle.sin())]
    };
    let count = [String::from("BYPOLYGON"), corners.to_string()];
    count.into_iter().chain((0..corners).flat_map(corner)).collect()
}

/// Places between 10 degrees west, east, south and north.
fn fill(client: &mut Client, places: usize) {
    let mut random = fastrand::Rng::with_seed(7);
    let mut degrees = || format!("{:.6}", random.f64() * 20.0 - 10.0);
    for number in (0..places).step_by(1000) {
        let some = (number..number + 1000).flat_map(|number| [degrees(), degrees(), number.to_string()]);
        client.cmd(["GEOADD".to_owned(), "g".to_owned()].into_iter().chain(some)).is(1000);
    }
}

/// With one comparison for each corner and place these would take minutes.
#[test]
fn a_polygon_with_many_corners_is_searched_soon() {
    let server = Server::start();
    let mut client = server.client();
    fill(&mut client, 20_000);
    let search = |corners| ["GEOSEARCH", "g"].map(str::to_owned).into_iter().chain(round_polygon(corners));
    let names = |client: &mut Client, corners| client.cmd(search(corners)).items();
    let few = names(&mut client, 1000).len();
    assert!((15_000..16_500).contains(&few), "{few}");
    let many = names(&mut client, 100_000);
    assert!(many.len().abs_diff(few) < 20, "{} {few}", many.len());
    // It is the same within a transaction, where others wait, and in a small set.
    client.line("MULTI").is_ok();
    client.cmd(search(100_000)).ignored();
    assert_eq!(client.line("EXEC").items(), [Reply::Array(many.clone())]);
    let store = ["GEOSEARCHSTORE", "found", "g"].map(str::to_owned).into_iter();
    client.cmd(store.chain(round_polygon(100_000))).is(many.len() as i64);
    client.line("DEL g").is(1);
    client.line("GEOADD g 0 0 within 9 9 beyond").is(2);
    assert_eq!(names(&mut client, 100_000), [Reply::from("within")]);
    client.line("SET g text").is_ok();
    client.cmd(search(100_000)).is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    client.line("DEL g").is(1);
    assert_eq!(names(&mut client, 100_000), []);
}

/// A search for places in a zigzag, of which all edges are at the latitudes of all places.
fn search_zigzag(corners: usize) -> Vec<String> {
    let corner = |number: usize| {
        let longitude = number as f64 * 20.0 / corners as f64 - 10.0;
        [format!("{longitude:.9}"), if number.is_multiple_of(2) { "-11" } else { "11" }.to_owned()]
    };
    let words = ["GEOSEARCH", "g", "BYPOLYGON", &corners.to_string()].map(str::to_owned);
    words.into_iter().chain((0..corners).flat_map(corner)).collect()
}

/// The search is long, and another client adds a place at some moment of it. The place is in the reply, or
/// the client is notified that its copy of the reply is stale.
#[test]
fn no_copy_of_what_a_polygon_has_found_is_stale() {
    let server = Server::start_with(&["--io-threads", "2"]);
    let (mut reader, mut writer) = (server.client3(), server.client());
    fill(&mut writer, 2000);
    let search = search_zigzag(1000);
    let text = |reply: &Reply| match reply {
        Reply::Bulk(text) => String::from_utf8(text.clone()).unwrap(),
        other => panic!("no text: {other}"),
    };
    let within = text(&writer.cmd(&search).items()[0]);
    let place = writer.cmd(["GEOPOS", "g", &within]).items().swap_remove(0);
    let Reply::Array(place) = place else { panic!("{place}") };
    let [longitude, latitude] = &*place else { panic!("{place:?}") };
    let (longitude, latitude) = (text(longitude), text(latitude));
    reader.line("CLIENT TRACKING ON").is_ok();
    for round in 0..60 {
        reader.send(&request(&search));
        // A little later in each round.
        (0..round).for_each(|_| writer.line("PING").is_simple("PONG"));
        let new = format!("new:{round}");
        writer.cmd(["GEOADD", "g", &longitude, &latitude, &new]).is(1);
        reader.send(&request(["PING"]));
        let (mut copy, mut is_told) = (Vec::new(), false);
        loop {
            match reader.reply().reply() {
                Reply::Array(found) => copy = found,
                Reply::Push(_) => is_told = true,
                _ => break,
            }
        }
        assert!(is_told || copy.contains(&Reply::from(&*new)), "in round {round}");
    }
    assert!(writer.cmd(&search).items().contains(&Reply::from("new:0")));
}

/// All edges of a zigzag are at the latitudes of all places.
#[test]
fn others_do_not_wait_for_polygons_and_some_take_too_long() {
    let server = Server::start_with(&["--io-threads", "2"]);
    let (mut client, mut other) = (server.client(), server.client());
    fill(&mut client, 5000);
    let found = client.cmd(search_zigzag(1000)).items().len();
    assert!((1000..4000).contains(&found), "{found}");
    // While one client compares, another one has the key.
    client.send(&request(search_zigzag(10_000)));
    std::thread::sleep(std::time::Duration::from_millis(50));
    other.line("ZADD g 0 later").is(1);
    assert!((1000..4000).contains(&client.reply().items().len()));
    // Where others would wait, it ends sooner.
    client.line("MULTI").is_ok();
    client.cmd(search_zigzag(10_000)).ignored();
    let replies = client.line("EXEC").reply().to_string();
    let error = "ERR the polygon has too many edges at the latitudes of too many places";
    assert_eq!(replies, format!("[(error) {error}]"));
    let store = ["GEOSEARCHSTORE", "found", "g"].map(str::to_owned).into_iter();
    client.cmd(store.chain(search_zigzag(10_000).into_iter().skip(2))).is_error(error);
    client.line("EXISTS found").is(0);
    // The places that come first are enough.
    client.line("MULTI").is_ok();
    client.cmd(search_zigzag(10_000).into_iter().chain(["COUNT", "10", "ANY"].map(str::to_owned))).ignored();
    assert!(!client.line("EXEC").reply().to_string().contains("error"));
}
