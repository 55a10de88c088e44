//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Written as `20G`, `20GiB` (both 20 * 2^30, as lvm(8) and qemu-img(1) read them), `20GB` (20 * 10^9)
/// or plain bytes. Fractions are refused where they are not a whole number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A size that cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSize {
    /// Not a number with a known unit.
    #[error("not a size; write bytes, or a number with K, M, G, T, P (powers of 1024) or KB, MB, GB, TB, PB (of 1000)")]
    NotASize,
    /// More bytes than 64 bits count.
    #[error("too large")]
    TooLarge,
    /// A fraction of a byte is left over.
    #[error("not a whole number of bytes")]
    NotWhole,
}

const LETTERS: &str = "kmgtpe";

fn unit(suffix: &str) -> Option<u128> {
    let suffix = suffix.to_ascii_lowercase();
    if suffix.is_empty() || suffix == "b" {
        return Some(1);
    }
    let power = LETTERS.find(suffix.chars().next()?)? as u32 + 1;
    match &suffix[1..] {
        "" | "ib" => Some(1024_u128.pow(power)),
        "b" => Some(1000_u128.pow(power)),
        _ => None,
    }
}

impl FromStr for ByteSize {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, BadSize> {
        let text = text.trim();
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let unit = unit(suffix.trim_start()).ok_or(BadSize::NotASize)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
            return Err(BadSize::NotASize);
        }
        // 18 digits after the point are more than anyone means and keep the products below within 128 bits.
        if fraction.len() > 18 {
            return Err(BadSize::NotWhole);
        }
        let whole: u64 = whole.parse().map_err(|_| BadSize::TooLarge)?;
        let scale = 10_u128.pow(fraction.len() as u32);
        let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| BadSize::NotASize)? };
        if !(fraction * unit).is_multiple_of(scale) {
            return Err(BadSize::NotWhole);
        }
        let bytes = u128::from(whole) * unit + fraction * unit / scale;
        u64::try_from(bytes).map(Self).map_err(|_| BadSize::TooLarge)
    }
}

/// The largest binary unit with at most two digits behind the point, and plain bytes where that would not be exact.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (power, letter) in LETTERS.char_indices().rev() {
            let unit = 1_u64 << (10 * (power + 1));
            let hundredths = u128::from(self.0) * 100;
            if self.0 >= unit && hundredths.is_multiple_of(u128::from(unit)) {
                let hundredths = hundredths / u128::from(unit);
                let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
                let text = text.trim_end_matches('0').trim_end_matches('.');
                return f.pad(&format!("{text} {}iB", letter.to_ascii_uppercase()));
            }
        }
        f.pad(&format!("{} bytes", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("512M", 512 << 20),
            ("512MiB", 512 << 20),
            ("512mib", 512 << 20),
            ("512 MiB", 512 << 20),
            ("512MB", 512_000_000),
            ("20G", 20 << 30),
            ("20GiB", 20 << 30),
            ("20GB", 20_000_000_000),
            ("1.5G", 3 << 29),
            ("0.001kB", 1),
            ("2T", 2 << 40),
            ("1P", 1 << 50),
            ("15E", 15 << 60),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for (text, error) in [
            ("", BadSize::NotASize),
            ("G", BadSize::NotASize),
            ("-1", BadSize::NotASize),
            ("1.", BadSize::NotASize),
            (".5G", BadSize::NotASize),
            ("1.2.3", BadSize::NotASize),
            ("20X", BadSize::NotASize),
            ("20GiBs", BadSize::NotASize),
            ("20Gi", BadSize::NotASize),
            ("20\u{e9}", BadSize::NotASize),
            ("0x10", BadSize::NotASize),
            ("16E", BadSize::TooLarge),
            ("99999999999999999999", BadSize::TooLarge),
            ("0.5", BadSize::NotWhole),
            ("0.3M", BadSize::NotWhole),
            ("0.0000000000000000001K", BadSize::NotWhole),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Err(error), "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_exact_and_reads_back() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (20 << 30, "20 GiB"),
            ((20 << 30) + 4096, "20971524 KiB"),
            (u64::MAX, "18446744073709551615 bytes"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
            assert_eq!(text.trim_end_matches(" bytes").parse(), Ok(ByteSize(bytes)));
        }
    }
}
