//! Which volumes are copies of one another.

/// An id drawn at random when a volume is formatted. Snapshots, clones and backups of the volume share it; no two
/// separately formatted volumes do. It is public, and every sector's seal is bound to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lineage(pub [u8; 16]);

impl std::fmt::Display for Lineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A lineage that is not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLineage;

impl std::fmt::Display for BadLineage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a lineage is 32 hexadecimal digits")
    }
}

impl std::error::Error for BadLineage {}

impl std::str::FromStr for Lineage {
    type Err = BadLineage;

    fn from_str(text: &str) -> Result<Self, BadLineage> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(BadLineage);
        }
        let mut id = [0; 16];
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| BadLineage)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| BadLineage)?;
        }
        Ok(Self(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_survives_its_text_form_and_nothing_else_parses() {
        let lineage = Lineage(std::array::from_fn(|i| (i * 17) as u8));
        assert_eq!(lineage.to_string().parse(), Ok(lineage));
        for bad in [
            "",
            "00",
            "+0112233445566778899aabbccddeeff",
            "g0112233445566778899aabbccddeeff",
            "é0112233445566778899aabbccddeef",
        ] {
            assert_eq!(bad.parse::<Lineage>(), Err(BadLineage));
        }
    }
}
