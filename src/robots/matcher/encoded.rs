//! The byte encoding of compiled rules: written by `trie` and `wildcard`, read by `matcher`. Pure.

/// Reads bytes one after the other. What reads them knows how they were written; past the end there are zeros.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> u32 {
        let Some((first, rest)) = self.0.split_first_chunk() else {
            return 0;
        };
        self.0 = rest;
        u32::from_le_bytes(*first)
    }

    /// A number of any size; small ones take one byte.
    #[inline]
    pub(crate) fn number(&mut self) -> usize {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let byte = self.u8();
            number |= usize::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

pub(crate) fn push_u32(blob: &mut Vec<u8>, number: u32) {
    blob.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn push_u16(blob: &mut Vec<u8>, number: usize) {
    let number =
        u16::try_from(number).expect("a line is cut at 20,000 bytes, and at most thrice as long when normalised");
    blob.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn push_number(blob: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        blob.push(number as u8 | 0x80);
        number >>= 7;
    }
    blob.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let numbers = [0, 1, 127, 128, 300, 16_383, 16_384, 49_152, u32::MAX as usize];
        let mut blob = vec![7];
        push_u32(&mut blob, 0xDEAD_BEEF);
        for number in numbers {
            push_number(&mut blob, number);
        }
        blob.extend_from_slice(b"end");
        let mut cursor = Cursor::new(&blob);
        assert_eq!((cursor.u8(), cursor.u32()), (7, 0xDEAD_BEEF));
        assert_eq!(numbers.map(|_| cursor.number()), numbers);
        assert_eq!((cursor.take(3), cursor.is_empty()), (b"end".as_slice(), true));
    }

    #[test]
    fn past_the_end_are_zeros() {
        let mut cursor = Cursor::new(&[0x80]);
        assert_eq!((cursor.number(), cursor.u8(), cursor.u32(), cursor.take(9)), (0, 0, 0, b"".as_slice()));
    }
}
