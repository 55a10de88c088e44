//! What an NBD client sends: its options, then a request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealdisk_export::nbd::handshake::{
    MAX_OPTION_LEN, Negotiation, Next, OPTION_HEADER_LEN, Offer, parse_option_header,
};
use sealdisk_export::nbd::transmission::{Command, REQUEST_LEN, RequestHeader, Terms};

fuzz_target!(|data: &[u8]| {
    let offer = Offer { name: "volume".into(), description: "fuzzed".into(), size: 1 << 20, read_only: false };
    let Some((flags, mut rest)) = data.split_first_chunk() else { return };
    let Some(mut negotiation) = Negotiation::begin(&offer, *flags) else { return };
    let agreed = loop {
        let Some((header, tail)) = rest.split_first_chunk::<OPTION_HEADER_LEN>() else { return };
        let Some((option, len)) = parse_option_header(header) else { return };
        let Some((data, tail)) = tail.split_at_checked(len.min(MAX_OPTION_LEN) as usize) else { return };
        rest = tail;
        let mut out = Vec::new();
        let next = match len > MAX_OPTION_LEN {
            true => negotiation.answer_too_big(option, &mut out),
            false => negotiation.answer(option, data, &mut out),
        };
        match next {
            Next::Option => assert!(!out.is_empty(), "every option is answered"),
            Next::Transmission(agreed) => break agreed,
            Next::Close => return,
        }
    };
    assert!(agreed.structured_replies || !agreed.allocation);
    let terms = Terms { disk_size: offer.size, read_only: offer.read_only, agreed };
    while let Some((header, tail)) = rest.split_first_chunk::<REQUEST_LEN>() {
        let Some(header) = RequestHeader::parse(header) else { return };
        match header.check(&terms) {
            Ok(Command::Read(range) | Command::Write { range, .. } | Command::BlockStatus { range, .. }) => {
                assert!(range.end() <= offer.size);
            }
            Ok(Command::Disconnect) => return,
            _ => {}
        }
        rest = tail.get(header.payload_len() as usize..).unwrap_or_default();
    }
});
