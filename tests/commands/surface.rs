//! Every reply around a string through the typed methods of the crate `redis`: does it understand them?

use redis::{Commands, Connection, Value};

use support::server::Server;

fn connections(server: &Server) -> [Connection; 2] {
    ["resp2", "resp3"].map(|protocol| {
        let url = format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port());
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
        connection
    })
}

/// Sends a line of words; the type says how the reply is to be understood.
fn ask<T: redis::FromRedisValue>(connection: &mut Connection, line: &str) -> T {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query(connection).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn strings_and_bits_are_understood() {
    let server = Server::start();
    for mut c in connections(&server) {
        let () = c.del("k").unwrap();
        assert_eq!(c.append::<_, _, usize>("k", "Hello").unwrap(), 5);
        assert_eq!(c.setrange::<_, _, usize>("k", 5, " World").unwrap(), 11);
        assert_eq!(c.getrange::<_, String>("k", 6, -1).unwrap(), "World");
        assert_eq!(c.strlen::<_, usize>("k").unwrap(), 11);
        assert_eq!(c.incr::<_, _, i64>("n", 5).unwrap() - c.decr::<_, _, i64>("n", 2).unwrap(), 2);
        assert_eq!(c.incr::<_, _, f64>("n", 0.5).unwrap().fract(), 0.5);
        let () = c.set_ex("t", "v", 100).unwrap();
        let () = c.pset_ex("t", "v", 100_000).unwrap();
        assert_eq!(c.get_del::<_, Option<String>>("t").unwrap().as_deref(), Some("v"));
        assert!(!c.mset_nx::<_, _, bool>(&[("k", "x"), ("unused", "y")]).unwrap());
        assert_eq!(ask::<String>(&mut c, "GETEX k EX 100"), "Hello World");
        assert_eq!(ask::<usize>(&mut c, "LCS k k LEN"), 11);
        assert_eq!(c.setbit::<_, bool>("b", 7, true).unwrap(), c.getbit::<_, bool>("b", 100).unwrap());
        assert_eq!(c.bitcount::<_, usize>("b").unwrap(), 1);
        assert_eq!(c.bit_not::<_, _, usize>("d", "b").unwrap(), 1);
        assert_eq!(
            ask::<Vec<Option<i64>>>(&mut c, "BITFIELD b GET u8 0 OVERFLOW FAIL SET u1 0 2"),
            [Some(1), None]
        );
        assert_eq!(ask::<i64>(&mut c, "BITPOS b 1"), 7);
        let () = c.del(&["k", "n", "b", "d"]).unwrap();
    }
}

#[test]
fn keys_and_expiries_are_understood() {
    let server = Server::start();
    for mut c in connections(&server) {
        let () = c.set("k", "v").unwrap();
        assert!(c.expire_at::<_, bool>("k", 33_177_117_420).unwrap());
        assert_eq!(ask::<i64>(&mut c, "EXPIRETIME k"), 33_177_117_420);
        assert!(c.pexpire_at::<_, bool>("k", 33_177_117_420_000).unwrap());
        assert_eq!(ask::<i64>(&mut c, "PEXPIRETIME k"), 33_177_117_420_000);
        assert!(!ask::<bool>(&mut c, "EXPIRE k 10 GT"));
        assert!(c.persist::<_, bool>("k").unwrap());
        assert!(ask::<bool>(&mut c, "COPY k copy"));
        let () = c.rename("copy", "renamed").unwrap();
        assert!(!c.rename_nx::<_, _, bool>("k", "renamed").unwrap());
        assert_eq!(c.object_encoding::<_, String>("k").unwrap(), "embstr");
        assert_eq!(c.object_idletime::<_, i64>("k").unwrap(), 0);
        let mut keys: Vec<String> = c.scan::<String>().unwrap().map(Result::unwrap).collect();
        keys.sort();
        assert_eq!(keys, ["k", "renamed"]);
        let payload: Vec<u8> = ask(&mut c, "DUMP k");
        let () = redis::cmd("RESTORE").arg("again").arg(0).arg(payload).arg("REPLACE").query(&mut c).unwrap();
        assert_eq!(c.get::<_, String>("again").unwrap(), "v");
        assert_eq!(c.unlink::<_, usize>(&["k", "again", "renamed"]).unwrap(), 3);
        assert_eq!(ask::<Option<String>>(&mut c, "RANDOMKEY"), None);
    }
}

#[test]
fn what_the_server_tells_is_understood() {
    let server = Server::start();
    for mut c in connections(&server) {
        let info: redis::InfoDict = ask(&mut c, "INFO everything");
        assert_eq!(info.get::<String>("role").as_deref(), Some("master"));
        assert!(info.get::<u64>("used_memory").unwrap() > 0);
        assert!(ask::<(u64, u64)>(&mut c, "TIME").0 > 1_700_000_000);
        assert!(ask::<Option<usize>>(&mut c, "MEMORY USAGE nosuch").is_none());
        assert!(matches!(ask::<Value>(&mut c, "MEMORY STATS"), Value::Array(_) | Value::Map(_)));
        assert!(matches!(ask::<Value>(&mut c, "SLOWLOG GET"), Value::Array(_)));
        assert!(matches!(ask::<Value>(&mut c, "LATENCY HISTOGRAM"), Value::Array(_) | Value::Map(_)));
        let role: (String, i64, Vec<Value>) = ask(&mut c, "ROLE");
        assert_eq!(role.0, "master");
        assert_eq!(ask::<i64>(&mut c, "WAIT 0 0"), 0);
        assert_eq!(ask::<i64>(&mut c, "CLIENT GETREDIR"), -1);
    }
}
