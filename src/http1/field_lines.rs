//! Forwards field lines byte for byte as received. Pure.

use super::write::put_field;
use std::ops::Range;

/// Writes field lines as they stand in the head `raw`; consecutive lines are copied in one piece.
pub struct FieldLines<'a> {
    raw: &'a [u8],
    /// Range of `raw` that is pending, to be written in one piece.
    held: Range<usize>,
}

impl<'a> FieldLines<'a> {
    pub fn of(raw: &'a [u8]) -> Self {
        FieldLines { raw, held: 0..0 }
    }

    /// Appends a field line, now or with the next ones.
    #[inline]
    pub fn put(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let start = (name.as_ptr() as usize).wrapping_sub(self.raw.as_ptr() as usize);
        let colon = start.wrapping_add(name.len());
        let end = colon.wrapping_add(value.len() + 4);
        let is_as_it_was = value.as_ptr() as usize == name.as_ptr() as usize + name.len() + 2
            && matches!(self.raw.get(colon..end), Some([b':', b' ', .., b'\r', b'\n']));
        match is_as_it_was {
            true if self.held.end == start => self.held.end = end,
            true => self.begin_at(out, start..end),
            false => self.put_anew(out, name, value),
        }
    }

    #[inline(never)]
    fn begin_at(&mut self, out: &mut Vec<u8>, line: Range<usize>) {
        self.flush(out);
        self.held = line;
    }

    #[inline(never)]
    fn put_anew(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        self.flush(out);
        put_field(out, name, value);
    }

    /// Writes the pending lines. Call before anything else is appended to `out`.
    #[inline]
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.raw[self.held.clone()]);
        self.held = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_lines_are_copied_or_normalised() {
        let raw = b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nC:3\r\nD: 4 \r\nE: 5\nF:  6\r\nG:\r\nH: 7\r\nContent-Length: 8, 8\r\nI: 9\r\n\r\n";
        let written = crate::http1::read_response(&mut raw.to_vec(), &mut 0, 1000, "GET", |head| {
            let mut out = Vec::new();
            let mut lines = FieldLines::of(head.raw);
            for field in head.fields.iter().filter(|field| field.name != b"B") {
                lines.put(&mut out, field.name, field.value);
            }
            lines.put(&mut out, b"Z", b"0");
            lines.flush(&mut out);
            out
        });
        let out = written.unwrap().unwrap();
        let wanted = "A: 1\r\nC: 3\r\nD: 4\r\nE: 5\r\nF: 6\r\nG: \r\nH: 7\r\nContent-Length: 8\r\nI: 9\r\nZ: 0\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
