//! CLIENT TRACKING and its relatives: whose copies of keys are tracked, and where the notifications go.

use crate::clients::Tracked;
use crate::instance::Instance;
use crate::resp::{Reply, Request};
use crate::session::Session;
use crate::tracking::{Mode, Options, Overlap};

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Context, Flags, Group, Result, Run};

/// The facts that most commands of this file share.
const CONNECTION: Command = Command {
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::CONNECTION,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

pub(super) const CLIENT_TRACKING: Command = Command {
    name: "client|tracking",
    summary: "Turns on or off messages about changes to the keys that this client may have cached.",
    since: "6.0.0",
    complexity: "O(1). Some options may introduce additional complexity.",
    arguments: &[
        Argument::one_of("status", &Argument::words(["ON", "OFF"])),
        Argument::integer("client-id").token("REDIRECT").optional(),
        Argument::string("prefix").token("PREFIX").optional().multiple().multiple_token(),
        Argument::word("BCAST").optional(),
        Argument::word("OPTIN").optional(),
        Argument::word("OPTOUT").optional(),
        Argument::word("NOLOOP").optional(),
    ],
    example: &[
        ("CLIENT TRACKING ON PREFIX a", "(error) ERR PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON BCAST PREFIX user:", "OK"),
        ("CLIENT TRACKING OFF", "OK"),
    ],
    run: Run::Server(tracking),
    ..CONNECTION
};

fn tracking(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let wishes = Wishes::parse(context.instance, request)?;
    if !args::on_or_off(request.at(2))? {
        end(context.instance, context.session);
        return Ok(reply.ok());
    }
    let Context { instance, session, .. } = context;
    let options = wishes.options(session)?;
    let before = session.tracking.as_deref();
    let begun = instance.tracking.begin(
        &instance.followers.interest,
        &session.client,
        before,
        options,
        &wishes.prefixes,
    );
    let mut tracks = begun.map_err(overlap)?;
    tracks.is_exception = before.is_some_and(|before| before.is_exception);
    session.tracking = Some(Box::new(tracks));
    instance.remote.get().into_iter().for_each(|remote| remote.want_changes());
    let Options { mode, redirect, .. } = options;
    let tracked = Tracked { redirect, has_prefixes: mode == Mode::Prefixes, is_broken: false };
    session.show(|profile| profile.tracking = Some(tracked));
    Ok(reply.ok())
}

/// Ends the tracking of keys for a client, if there is any.
pub(in crate::commands) fn end(instance: &Instance, session: &mut Session) {
    if let Some(tracks) = session.tracking.take() {
        instance.tracking.end(&instance.followers.interest, &tracks);
        session.show(|profile| profile.tracking = None);
    }
}

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct Wishes<'a> {
    redirect: u64,
    prefixes: Vec<&'a [u8]>,
    has_prefixes: bool,
    opts_in: bool,
    opts_out: bool,
    spares_own: bool,
}

impl<'a> Wishes<'a> {
    fn parse(instance: &Instance, request: Request<'a>) -> Result<Wishes<'a>> {
        let mut wishes = Wishes::default();
        let mut options = args::Options::new(request, 3);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "redirect") => {
                    let id = options.value()?;
                    if wishes.redirect != 0 {
                        return Err(Error::fixed("ERR A client can only redirect to a single other client"));
                    }
                    let id = u64::try_from(args::integer(id)?).ok();
                    let id = id.filter(|id| instance.clients.get(*id).is_some());
                    let unknown = Error::fixed("ERR The client ID you want redirect to does not exist");
                    wishes.redirect = id.ok_or(unknown)?;
                }
                _ if is_word(option, "prefix") => wishes.prefixes.push(options.value()?),
                _ if is_word(option, "bcast") => wishes.has_prefixes = true,
                _ if is_word(option, "optin") => wishes.opts_in = true,
                _ if is_word(option, "optout") => wishes.opts_out = true,
                _ if is_word(option, "noloop") => wishes.spares_own = true,
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(wishes)
    }

    /// The options as a whole. Refuses options that contradict each other, or the client's present mode.
    fn options(&self, session: &Session) -> Result<Options> {
        let before = session.tracking.as_ref().map(|tracks| tracks.options.mode);
        if !self.prefixes.is_empty() && !self.has_prefixes {
            return Err(Error::fixed("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        if before.is_some_and(|before| (before == Mode::Prefixes) != self.has_prefixes) {
            return Err(Error::fixed(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        let mode = match (self.has_prefixes, self.opts_in, self.opts_out) {
            (true, false, false) => Mode::Prefixes,
            (true, ..) => return Err(Error::fixed("ERR OPTIN and OPTOUT are not compatible with BCAST")),
            (_, true, true) => {
                return Err(Error::fixed("ERR You can't specify both OPTIN mode and OPTOUT mode"));
            }
            (_, true, _) => Mode::Chosen,
            (_, _, true) => Mode::NotSpared,
            _ => Mode::All,
        };
        if let (Some(Mode::NotSpared), Mode::Chosen) | (Some(Mode::Chosen), Mode::NotSpared) = (before, mode)
        {
            return Err(Error::fixed(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                 re-enabling it with a different mode.",
            ));
        }
        Ok(Options { mode, redirect: self.redirect, spares_own: self.spares_own })
    }
}

fn overlap(overlap: Overlap) -> Error {
    let which = if overlap.is_old { "an existing" } else { "another provided" };
    let text: [&[u8]; 7] = [
        b"ERR Prefix '",
        &overlap.prefix,
        b"' overlaps with ",
        which.as_bytes(),
        b" prefix '",
        &overlap.other,
        b"'. Prefixes for a single client must not overlap.",
    ];
    Error::bytes(text.concat())
}

pub(super) const CLIENT_CACHING: Command = Command {
    name: "client|caching",
    summary: "Sets whether the keys that the next command reads are tracked (OPTIN and OPTOUT modes).",
    since: "6.0.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of("mode", &Argument::words(["YES", "NO"]))],
    example: &[
        ("CLIENT TRACKING ON OPTIN", "OK"),
        ("CLIENT CACHING YES", "OK"),
        ("GET mykey", "(nil)"),
        ("CLIENT TRACKING OFF", "OK"),
    ],
    run: Run::Session(caching),
    ..CONNECTION
};

fn caching(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let Some(tracks) = &mut session.tracking else {
        return Err(Error::fixed(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
             mode enabled",
        ));
    };
    let answer = request.at(2);
    let (mode, wrong) = match answer {
        _ if is_word(answer, "yes") => {
            (Mode::Chosen, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
        }
        _ if is_word(answer, "no") => {
            (Mode::NotSpared, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
        }
        _ => return Err(Error::SYNTAX),
    };
    if tracks.options.mode != mode {
        return Err(Error::fixed(wrong));
    }
    tracks.is_exception = true;
    Ok(reply.ok())
}

pub(super) const CLIENT_GETREDIR: Command = Command {
    name: "client|getredir",
    summary: "Returns the ID of the client that gets the invalidation messages: 0 if none, -1 if tracking is off.",
    since: "6.0.0",
    complexity: "O(1)",
    example: &[("CLIENT GETREDIR", "(integer) -1")],
    run: Run::Session(getredir),
    ..CONNECTION
};

fn getredir(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(redirect(session)))
}

fn redirect(session: &Session) -> i64 {
    session.tracking.as_ref().map_or(-1, |tracks| tracks.options.redirect as i64)
}

pub(super) const CLIENT_TRACKINGINFO: Command = Command {
    name: "client|trackinginfo",
    summary: "Returns the tracking mode, prefixes and redirection of this connection.",
    since: "6.2.0",
    complexity: "O(1)",
    example: &[(
        "CLIENT TRACKINGINFO",
        "[\"flags\", [\"off\"], \"redirect\", (integer) -1, \"prefixes\", []]",
    )],
    run: Run::Server(trackinginfo),
    ..CONNECTION
};

fn trackinginfo(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let Context { instance, session, .. } = context;
    let flags = flags(session);
    let tracks = session.tracking.as_deref();
    let prefixes = tracks.map_or(Vec::new(), |tracks| instance.tracking.prefixes(tracks));
    Ok(reply.map_of(3, 0..6, |part, reply| match part {
        0 => reply.bulk(b"flags"),
        1 => reply.set_of(flags.iter(), |flag, reply| reply.bulk(flag.as_bytes())),
        2 => reply.bulk(b"redirect"),
        3 => reply.integer(redirect(session)),
        4 => reply.bulk(b"prefixes"),
        _ => reply.array_of(prefixes.iter(), |prefix, reply| reply.bulk(prefix)),
    }))
}

fn flags(session: &Session) -> Vec<&'static str> {
    let Some(tracks) = &session.tracking else { return vec!["off"] };
    let (mode, exception) = match tracks.options.mode {
        Mode::All => (None, None),
        Mode::Prefixes => (Some("bcast"), None),
        Mode::Chosen => (Some("optin"), Some("caching-yes")),
        Mode::NotSpared => (Some("optout"), Some("caching-no")),
    };
    let is_broken = session.client.profile.lock().tracking.is_some_and(|tracked| tracked.is_broken);
    [
        Some("on"),
        mode,
        exception.filter(|_| tracks.is_exception),
        tracks.options.spares_own.then_some("noloop"),
        is_broken.then_some("broken_redirect"),
    ]
    .into_iter()
    .flatten()
    .collect()
}
