//! Classes of bytes in an address.

/// The classes of a byte, or of all bytes of an address: the bits of which it has at least one.
pub(super) type Class = u8;
/// A letter, a digit or a non-ASCII byte.
pub(super) const LET_DIG: Class = 1;
/// A symbol that is valid in an atom.
const SYMBOL: Class = 2;
pub(super) const ATEXT: Class = LET_DIG | SYMBOL;
pub(super) const DOT: Class = 4;
pub(super) const HYPHEN: Class = 8;
pub(super) const PLUS: Class = 16;
pub(super) const UPPER_CASE: Class = 32;
pub(super) const NON_ASCII: Class = 64;

pub(super) const fn class(byte: u8) -> Class {
    CLASSES[byte as usize]
}

pub(super) fn classes_of(bytes: &[u8]) -> Class {
    bytes.iter().fold(0, |classes, byte| classes | class(*byte))
}

const CLASSES: [Class; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'.' => DOT,
            b'-' => SYMBOL | HYPHEN,
            b'+' => SYMBOL | PLUS,
            b'A'..=b'Z' => LET_DIG | UPPER_CASE,
            b'a'..=b'z' | b'0'..=b'9' => LET_DIG,
            128.. => LET_DIG | NON_ASCII,
            b'!' | b'#'..=b'\'' | b'*' | b'/' | b'=' | b'?' | b'^'..=b'`' | b'{'..=b'~' => SYMBOL,
            _ => 0,
        };
        byte += 1;
    }
    classes
};
