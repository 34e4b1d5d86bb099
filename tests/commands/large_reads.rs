//! Requests that read much of a large value: they hold no lock while they do, and answer as if they did.

use std::thread;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::server::Server;

const ELEMENTS: usize = 12_000;

/// Collections well above the size from which they are read on copies, and one small set.
fn fill(client: &mut Client) {
    let number = |number: usize| format!("{:08}", number * 7919 % ELEMENTS);
    for (name, parts) in [("HSET h", 2), ("RPUSH l", 1), ("SADD s", 1), ("ZADD z", 2), ("SADD t", 1)] {
        let mut words: Vec<String> = name.split(' ').map(str::to_owned).collect();
        for element in 0..ELEMENTS {
            if name == "SADD t" && element % 3 > 0 {
                continue;
            }
            if parts == 2 {
                words.push(number(element));
            }
            words.push(if name == "ZADD z" {
                format!("m{element:024}")
            } else {
                number(element) + "0123456789abcd"
            });
        }
        client.cmd(words.iter().map(String::as_str).collect::<Vec<_>>()).ignored();
    }
    let places: Vec<u8> = (0..6000)
        .flat_map(|place| {
            request([
                "GEOADD".into(),
                "g".into(),
                format!("{}", place % 170),
                format!("{}", place % 80),
                format!("place:{place}"),
            ])
        })
        .collect();
    client.send(&places);
    (0..6000).for_each(|_| drop(client.reply()));
    let entries: Vec<u8> = (1..9000)
        .flat_map(|id| {
            request(["XADD".into(), "x".into(), format!("{id}-1"), "field".into(), format!("{id:030}")])
        })
        .collect();
    client.send(&entries);
    (1..9000).for_each(|_| drop(client.reply()));
    client.line("XGROUP CREATE x g 0").is_ok();
    for (consumer, count) in [("Alice", 5000), ("Bob", 10)] {
        client.line(&format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS x >")).ignored();
    }
    client.cmd(["SET", "text", &"0110x".repeat(100_000)]).is_ok();
    client.line("SADD small 000079190123456789abcd none").ignored();
    client.line("RPUSH words one two").ignored();
    for element in 0..40_000 {
        client.send(&request(["RPUSH", "numbers", &(element * 7919 % 40_000).to_string()]));
    }
    (0..40_000).for_each(|_| drop(client.reply()));
    let weights = (0..100).flat_map(|number| [format!("w_{number}"), format!("{}", number * 79 % 100)]);
    client.cmd(["MSET".to_owned()].into_iter().chain(weights)).is_ok();
}

const READS: &[&str] = &[
    "HGETALL h",
    "HKEYS h",
    "HVALS h",
    "HSCAN h 0 COUNT 5000",
    "LRANGE l 0 -1",
    "LRANGE l -5000 -2",
    "LRANGE l 0 5",
    "LPOS l 000000010123456789abcd COUNT 0",
    "SMEMBERS s",
    "SSCAN s 0 COUNT 20000",
    "SINTER s t small",
    "SINTER s nothing",
    "SUNION t small",
    "SDIFF s t small",
    "SINTERCARD 2 s t LIMIT 2000",
    "SUNIONCARD 2 s t",
    "SUNIONCARD 2 s t APPROX",
    "SDIFFCARD 2 s t",
    "ZRANGE z 0 -1 WITHSCORES",
    "ZRANGE z (100 +inf BYSCORE",
    "ZRANGE z 5 inf BYSCORE LIMIT 2 -1",
    "ZREVRANGE z 0 2000",
    "ZRANGEBYSCORE z 7 5000 WITHSCORES",
    "ZREVRANGEBYSCORE z +inf -inf LIMIT 10 3000",
    "ZRANGEBYLEX z - +",
    "ZREVRANGEBYLEX z + - LIMIT 3 10",
    "ZSCAN z 0 COUNT 3000",
    "ZUNION 2 z g WITHSCORES",
    "ZINTER 2 z z",
    "ZINTERCARD 2 z z",
    "ZDIFF 2 z g",
    "XRANGE x - +",
    "XREVRANGE x + - COUNT 4000",
    "XINFO STREAM x",
    "XINFO STREAM x FULL COUNT 0",
    "XINFO STREAM x FULL COUNT 3 4",
    "XINFO STREAM h FULL",
    "XINFO GROUPS x",
    "XINFO CONSUMERS x g",
    "XINFO CONSUMERS x nothing",
    "XPENDING x g",
    "XPENDING x g - + 5000",
    "XPENDING x g IDLE 1 - + 2 Bob",
    "XPENDING x nothing - + 5000",
    "GEOSEARCH g FROMLONLAT 20 20 BYRADIUS 3000 km ASC WITHDIST",
    "GEORADIUS g 20 20 2000 km",
    "GEORADIUS_RO g 20 20 2000 km",
    "GEORADIUSBYMEMBER g place:7 1000 km",
    "GEORADIUSBYMEMBER_RO g place:7 1000 km DESC",
    "SORT numbers LIMIT 0 2000",
    "SORT l ALPHA DESC",
    "SORT l",
    "SORT_RO numbers DESC",
    "SORT numbers BY w_* GET # GET w_* LIMIT 5 20",
    "SORT numbers BY w_* ALPHA LIMIT 5 20",
    "SORT_RO numbers BY nosort GET w_*->f",
    "BITCOUNT text",
    "BITPOS text 0 17",
    "DIGEST text",
    "DUMP text",
    "DUMP h",
    "DUMP z",
    "GEOSEARCH g BYPOLYGON 3 0 0 90 10 0 70",
    "LCS text words",
    "HGETALL l",
    "LRANGE l 0 x",
    "ZRANGE z 0 -1 BYSCORE BYLEX",
    "SINTER s l",
    "GEOSEARCH g FROMMEMBER absent BYRADIUS 1 km",
    "SMEMBERS nothing",
    "SRANDMEMBER s 0",
    "SORT l BY nosort GET x* LIMIT 0 3",
];

fn reads(client: &mut Client) -> (String, String) {
    (client.info("keyspace_hits"), client.info("keyspace_misses"))
}

/// The bytes of the reply to a request, and the hits and misses that it counted. In EXEC, a request reads
/// under its locks.
fn answer(client: &mut Client, line: &str, is_in_exec: bool) -> (Vec<u8>, (String, String)) {
    client.line("CONFIG RESETSTAT").is_ok();
    if is_in_exec {
        client.line("MULTI").is_ok();
        client.line(line).is_simple("QUEUED");
        client.send(&request(["EXEC"]));
    } else {
        client.send(&request(line.split(' ')));
    }
    let reply = client.reply_bytes();
    let reply = if is_in_exec { reply.strip_prefix(b"*1\r\n").expect("one reply").to_vec() } else { reply };
    (reply, reads(client))
}

#[test]
fn what_is_read_without_locks_is_what_is_read_under_them() {
    let folder = Folder::new("large-reads");
    let options = ["--appendonly", "yes", "--enable-debug-command", "yes", "--enable-clock-command", "yes"];
    let mut client = folder.serve(&options).into_client();
    client.line("CLOCK FREEZE").ignored();
    fill(&mut client);
    client.line("DEBUG LOADAOF").is_ok();
    for protocol in ["2", "3"] {
        client.line(&format!("HELLO {protocol}")).ignored();
        for line in READS {
            let (alone, in_exec) = (answer(&mut client, line, false), answer(&mut client, line, true));
            assert!(alone == in_exec, "{line}: {:?} {:?}", alone.1, in_exec.1);
        }
    }
    for (line, count) in [("SRANDMEMBER s 5000", 5000), ("SRANDMEMBER s -30000", 30_000)] {
        assert_eq!(client.line(line).items().len(), count, "{line}");
    }
    assert_eq!(client.line("HRANDFIELD h 20000").items().len(), ELEMENTS);
    assert_eq!(client.line("ZRANDMEMBER z -2000").items().len(), 2000);
}

#[test]
fn absent_keys_beside_a_large_one_are_announced_once() {
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), server.client());
    fill(&mut client);
    client.line("CONFIG SET notify-keyspace-events Em").is_ok();
    listener.line("SUBSCRIBE __keyevent@0__:keymiss").ignored();
    assert_eq!(client.line("SUNION s nothing").items().len(), ELEMENTS);
    client.line("PUBLISH __keyevent@0__:keymiss end").is(1);
    let heard: Vec<String> = (0..2).map(|_| listener.reply().items()[2].to_string()).collect();
    assert!(heard[0].contains("nothing") && heard[1].contains("end"), "{heard:?}");
}

#[test]
fn a_reader_that_keeps_copies_hears_of_every_change_of_what_it_has_read() {
    let server = Server::start();
    let (mut reader, mut other) = (server.client(), server.client());
    fill(&mut other);
    reader.line("HELLO 3").ignored();
    reader.line("CLIENT TRACKING ON").is_ok();
    assert_eq!(reader.line("SMEMBERS s").items().len(), ELEMENTS);
    other.line("SADD s new").is(1);
    let news = reader.reply().reply().to_string();
    assert!(news.contains("invalidate"), "{news}");
}

#[test]
fn a_large_value_is_read_as_it_is_at_one_moment() {
    let server = Server::start();
    let mut client = server.client();
    fill(&mut client);
    client.line("MSET a 0 b 0").is_ok();
    client.line("HSET h 00000000 0 00000001 0").ignored();
    client.line("LTRIM l 0 11999").is_ok();
    thread::scope(|scope| {
        let mut writer = server.client();
        let writing = scope.spawn(move || {
            for number in 0..1500 {
                let change = format!("HSET h 00000000 {number} 00000001 {number}");
                for line in ["MULTI", &change, "LPUSH l new", "RPOP l", "SADD s new", "SADD t new", "EXEC"] {
                    writer.send(&request(line.split(' ')));
                }
                (0..7).for_each(|_| writer.reply().ignored());
                writer.line("SREM s new").ignored();
                writer.line("SREM t new").ignored();
            }
        });
        while !writing.is_finished() {
            let all = client.line("HGETALL h").items();
            let value = |field: &[u8]| {
                let at = all.iter().position(|part| *part == Reply::Bulk(field.to_vec())).expect("the field");
                &all[at + 1]
            };
            assert_eq!(value(b"00000000"), value(b"00000001"));
            assert_eq!(client.line("LRANGE l 0 -1").items().len(), ELEMENTS);
        }
        writing.join().expect("the writer gets its replies");
    });
    client.line("FLUSHALL").is_ok();
    client.line("DBSIZE").is(0);
}
