//! Fixed newstyle negotiation: a client's options in, replies out. Pure: no socket is touched here.
//!
//! Source: "Handshake phase" of the NBD protocol.

use super::protocol::{
    ALLOCATION_CONTEXT, ALLOCATION_CONTEXT_ID, INIT_MAGIC, MAX_PAYLOAD, MAX_STRING, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    handshake_flag, info, option, option_reply, transmission_flag,
};
use super::wire::Fields;

/// Bytes of a client's flags, which follow the greeting.
pub const CLIENT_FLAGS_LEN: usize = 4;
/// Bytes in front of an option's data: magic, option, length.
pub const OPTION_HEADER_LEN: usize = 16;
/// Longest option data that is read; longer data is answered with `NBD_REP_ERR_TOO_BIG` and thrown away.
pub const MAX_OPTION_LEN: u32 = 64 << 10;

/// The disk as negotiation describes it.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The export's name. The empty name, which means the default export, leads here too.
    pub name: String,
    /// What people are told about it.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// What client and server agreed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Reads are answered with structured replies.
    pub structured_replies: bool,
    /// The client may ask for `base:allocation`.
    pub allocation: bool,
}

/// What follows an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another option.
    Option,
    /// The transmission phase.
    Transmission(Agreed),
    /// The end of the connection, once the replies have been sent.
    Close,
}

/// Magic numbers and handshake flags: what the server says first.
pub fn greeting() -> [u8; 18] {
    let mut greeting = [0; 18];
    greeting[..8].copy_from_slice(&INIT_MAGIC.to_be_bytes());
    greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    greeting[16..].copy_from_slice(&(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
    greeting
}

/// The option's number and the length of its data; `None` without the magic number.
pub fn parse_option_header(header: &[u8; OPTION_HEADER_LEN]) -> Option<(u32, u32)> {
    let mut fields = Fields::new(header);
    if fields.u64()? != OPTION_MAGIC {
        return None;
    }
    Some((fields.u32()?, fields.u32()?))
}

/// One client's negotiation.
pub struct Negotiation<'a> {
    offer: &'a Offer,
    no_zeroes: bool,
    agreed: Agreed,
}

impl<'a> Negotiation<'a> {
    /// Begins with the client's flags; `None` if one of them is unknown, which ends the connection.
    pub fn begin(offer: &'a Offer, client_flags: [u8; CLIENT_FLAGS_LEN]) -> Option<Self> {
        let flags = u32::from_be_bytes(client_flags);
        if flags & !u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES) != 0 {
            return None;
        }
        let no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        Some(Self { offer, no_zeroes, agreed: Agreed::default() })
    }

    /// Answers an option: appends the replies to `out` and says what follows.
    pub fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        match option {
            option::EXPORT_NAME => return self.export_name(data, out),
            option::ABORT => {
                reply(out, option, option_reply::ACK, &[]);
                return Next::Close;
            }
            option::LIST => self.list(data, out),
            option::INFO | option::GO => {
                if self.info(option, data, out) && option == option::GO {
                    return Next::Transmission(self.agreed);
                }
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.agreed.structured_replies = true;
                reply(out, option, option_reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY => invalid(out, option, "this option takes no data"),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data, out),
            _ => refuse(out, option, option_reply::ERR_UNSUP, "this option is not supported"),
        }
        Next::Option
    }

    /// Answers an option whose data is longer than [`MAX_OPTION_LEN`] and was thrown away.
    pub fn answer_too_big(&mut self, option: u32, out: &mut Vec<u8>) -> Next {
        if option == option::EXPORT_NAME {
            return Next::Close;
        }
        if option == option::SET_META_CONTEXT {
            self.agreed.allocation = false;
        }
        refuse(out, option, option_reply::ERR_TOO_BIG, "the option's data is too long");
        Next::Option
    }

    /// Takes back a [`Next::Transmission`] because the disk has as many clients as it may have; `out` is replaced.
    pub fn answer_full(&mut self, option: u32, out: &mut Vec<u8>) -> Next {
        out.clear();
        if option == option::EXPORT_NAME {
            return Next::Close;
        }
        refuse(out, option, option_reply::ERR_POLICY, "the disk has as many clients as it may have");
        Next::Option
    }

    fn is_offered(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.offer.name.as_bytes()
    }

    fn transmission_flags(&self) -> u16 {
        use transmission_flag::*;
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
        flags |= CAN_MULTI_CONN | SEND_CACHE;
        if self.offer.read_only {
            flags |= READ_ONLY;
        }
        if self.agreed.structured_replies {
            flags |= SEND_DF;
        }
        flags
    }

    fn export_name(&self, name: &[u8], out: &mut Vec<u8>) -> Next {
        if !self.is_offered(name) {
            return Next::Close;
        }
        out.extend(self.offer.size.to_be_bytes());
        out.extend(self.transmission_flags().to_be_bytes());
        if !self.no_zeroes {
            out.extend([0; 124]);
        }
        Next::Transmission(self.agreed)
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) {
        if !data.is_empty() {
            return invalid(out, option::LIST, "this option takes no data");
        }
        let name = self.offer.name.as_bytes();
        let mut server = Vec::with_capacity(4 + name.len() + self.offer.description.len());
        server.extend((name.len() as u32).to_be_bytes());
        server.extend(name);
        server.extend(self.offer.description.as_bytes());
        reply(out, option::LIST, option_reply::SERVER, &server);
        reply(out, option::LIST, option_reply::ACK, &[]);
    }

    /// Whether the export was accepted.
    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> bool {
        let Some((name, requests)) = parse_info(data) else {
            invalid(out, option, "the option's data is malformed");
            return false;
        };
        if !self.is_offered(name) {
            refuse(out, option, option_reply::ERR_UNKNOWN, "there is no export of that name");
            return false;
        }
        let mut tell = |what: u16, parts: &[&[u8]]| {
            let info = [&what.to_be_bytes()[..], &parts.concat()].concat();
            reply(out, option, option_reply::INFO, &info);
        };
        tell(info::EXPORT, &[&self.offer.size.to_be_bytes(), &self.transmission_flags().to_be_bytes()]);
        let asked = |what| requests.contains(&what);
        if asked(info::NAME) {
            tell(info::NAME, &[self.offer.name.as_bytes()]);
        }
        if asked(info::DESCRIPTION) {
            tell(info::DESCRIPTION, &[self.offer.description.as_bytes()]);
        }
        if asked(info::BLOCK_SIZE) {
            let preferred = sealdisk_units::SECTOR_SIZE as u32;
            tell(info::BLOCK_SIZE, &[1u32, preferred, MAX_PAYLOAD].map(u32::to_be_bytes).each_ref().map(|b| &b[..]));
        }
        reply(out, option, option_reply::ACK, &[]);
        true
    }

    fn meta_context(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let selecting = option == option::SET_META_CONTEXT;
        if selecting {
            self.agreed.allocation = false;
        }
        if !self.agreed.structured_replies {
            return invalid(out, option, "structured replies must be negotiated first");
        }
        let Some((name, queries)) = parse_meta_context(data) else {
            return invalid(out, option, "the option's data is malformed");
        };
        if !self.is_offered(name) {
            return refuse(out, option, option_reply::ERR_UNKNOWN, "there is no export of that name");
        }
        let names_it = |query: &&[u8]| *query == ALLOCATION_CONTEXT.as_bytes() || (!selecting && *query == b"base:");
        let found = queries.iter().any(names_it) || (!selecting && queries.is_empty());
        if found {
            let id = if selecting { ALLOCATION_CONTEXT_ID } else { 0 };
            let context = [&id.to_be_bytes()[..], ALLOCATION_CONTEXT.as_bytes()].concat();
            reply(out, option, option_reply::META_CONTEXT, &context);
        }
        self.agreed.allocation |= selecting && found;
        reply(out, option, option_reply::ACK, &[]);
    }
}

/// The export's name and the information asked for.
fn parse_info(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut fields = Fields::new(data);
    let name = fields.string().filter(|name| name.len() <= MAX_STRING)?;
    let count = fields.u16()?;
    let requests = (0..count).map(|_| fields.u16()).collect::<Option<Vec<_>>>()?;
    fields.is_empty().then_some((name, requests))
}

/// The export's name and the queries.
fn parse_meta_context(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields::new(data);
    let name = fields.string().filter(|name| name.len() <= MAX_STRING)?;
    let count = fields.u32()?;
    let queries = (0..count).map(|_| fields.string()).collect::<Option<Vec<_>>>()?;
    fields.is_empty().then_some((name, queries))
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

fn refuse(out: &mut Vec<u8>, option: u32, error: u32, why: &str) {
    reply(out, option, error, why.as_bytes());
}

fn invalid(out: &mut Vec<u8>, option: u32, why: &str) {
    refuse(out, option, option_reply::ERR_INVALID, why);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer { name: "pgdata".into(), description: "a disk".into(), size: 1 << 30, read_only: false }
    }

    /// The kinds of the replies in `out`.
    fn kinds(out: &[u8]) -> Vec<u32> {
        let mut fields = Fields::new(out);
        let mut kinds = Vec::new();
        while !fields.is_empty() {
            assert_eq!(fields.u64(), Some(OPTION_REPLY_MAGIC));
            fields.u32().unwrap();
            kinds.push(fields.u32().unwrap());
            fields.string().unwrap();
        }
        kinds
    }

    fn ask(negotiation: &mut Negotiation<'_>, option: u32, data: &[u8]) -> (Next, Vec<u32>) {
        let mut out = Vec::new();
        let next = negotiation.answer(option, data, &mut out);
        (next, kinds(&out))
    }

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
    }

    fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = [string(name), (queries.len() as u32).to_be_bytes().to_vec()].concat();
        queries.iter().for_each(|query| data.extend(string(query)));
        data
    }

    #[test]
    fn unknown_client_flags_end_the_connection() {
        let offer = offer();
        assert!(Negotiation::begin(&offer, 3u32.to_be_bytes()).is_some());
        assert!(Negotiation::begin(&offer, 0u32.to_be_bytes()).is_some());
        assert!(Negotiation::begin(&offer, 4u32.to_be_bytes()).is_none());
    }

    #[test]
    fn export_name_pads_with_zeroes_unless_told_not_to() {
        let offer = offer();
        for (flags, len) in [(1u32, 134), (3, 10)] {
            let mut out = Vec::new();
            let mut negotiation = Negotiation::begin(&offer, flags.to_be_bytes()).unwrap();
            let next = negotiation.answer(option::EXPORT_NAME, b"pgdata", &mut out);
            assert_eq!((next, out.len()), (Next::Transmission(Agreed::default()), len));
        }
        let mut negotiation = Negotiation::begin(&offer, 3u32.to_be_bytes()).unwrap();
        assert_eq!(negotiation.answer(option::EXPORT_NAME, b"other", &mut Vec::new()), Next::Close);
    }

    #[test]
    fn go_is_refused_for_other_names_and_malformed_data_and_the_client_may_try_again() {
        let offer = offer();
        let mut negotiation = Negotiation::begin(&offer, 3u32.to_be_bytes()).unwrap();
        let other = [string("other"), vec![0, 0]].concat();
        assert_eq!(ask(&mut negotiation, option::GO, &other), (Next::Option, vec![option_reply::ERR_UNKNOWN]));
        for bad in [&[][..], &[0, 0, 0, 9, 0], &[0, 0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 7], &[0xff; 8]] {
            assert_eq!(ask(&mut negotiation, option::GO, bad), (Next::Option, vec![option_reply::ERR_INVALID]));
        }
        let all = [string(""), vec![0, 3, 0, 1, 0, 2, 0, 3]].concat();
        let told = vec![option_reply::INFO, option_reply::INFO, option_reply::INFO, option_reply::INFO];
        let told = [told, vec![option_reply::ACK]].concat();
        assert_eq!(ask(&mut negotiation, option::INFO, &all), (Next::Option, told.clone()));
        assert_eq!(ask(&mut negotiation, option::GO, &all), (Next::Transmission(Agreed::default()), told));
    }

    #[test]
    fn the_allocation_context_needs_structured_replies_and_the_last_selection_counts() {
        let offer = offer();
        let mut negotiation = Negotiation::begin(&offer, 3u32.to_be_bytes()).unwrap();
        let select = contexts("pgdata", &["qemu:dirty-bitmap:x", "base:allocation"]);
        let set = option::SET_META_CONTEXT;
        assert_eq!(ask(&mut negotiation, set, &select).1, [option_reply::ERR_INVALID]);
        assert_eq!(ask(&mut negotiation, option::STRUCTURED_REPLY, b"x").1, [option_reply::ERR_INVALID]);
        assert_eq!(ask(&mut negotiation, option::STRUCTURED_REPLY, b"").1, [option_reply::ACK]);
        assert_eq!(ask(&mut negotiation, set, &select).1, [option_reply::META_CONTEXT, option_reply::ACK]);
        assert!(negotiation.agreed.allocation);
        assert_eq!(ask(&mut negotiation, set, &contexts("", &["base:"])).1, [option_reply::ACK]);
        assert!(!negotiation.agreed.allocation);
        for listed in [&[][..], &["base:"], &["base:allocation"]] {
            let (_, kinds) = ask(&mut negotiation, option::LIST_META_CONTEXT, &contexts("", listed));
            assert_eq!(kinds, [option_reply::META_CONTEXT, option_reply::ACK]);
        }
        assert!(!negotiation.agreed.allocation, "listing selects nothing");
        let cut_off = &select[..select.len() - 1];
        assert_eq!(ask(&mut negotiation, set, cut_off).1, [option_reply::ERR_INVALID]);
    }

    #[test]
    fn unknown_options_among_them_tls_are_unsupported() {
        let offer = offer();
        let mut negotiation = Negotiation::begin(&offer, 3u32.to_be_bytes()).unwrap();
        for option in [4, 5, 11, 0, u32::MAX] {
            assert_eq!(ask(&mut negotiation, option, b""), (Next::Option, vec![option_reply::ERR_UNSUP]));
        }
        assert_eq!(ask(&mut negotiation, option::ABORT, b"bye"), (Next::Close, vec![option_reply::ACK]));
    }
}
