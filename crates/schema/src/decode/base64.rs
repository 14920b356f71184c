//! Checks standard base64 as Go decodes it. The error names the first illegal byte.

/// Checks padding and alphabet; line breaks are skipped.
pub(super) fn check(text: &str) -> Result<(), String> {
    let refused = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let bytes: Vec<(usize, u8)> = text.bytes().enumerate().filter(|(_, b)| !matches!(b, b'\n' | b'\r')).collect();
    for (group, quantum) in bytes.chunks(4).enumerate() {
        for (index, (at, b)) in quantum.iter().enumerate() {
            if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/') {
                continue;
            }
            if *b != b'=' || index < 2 {
                return refused(*at);
            }
            // Padding ends the text: after `=` in the third position comes another one.
            if index == 2 && quantum.get(3).is_none_or(|(_, next)| *next != b'=') {
                return refused(quantum.get(3).map_or(text.len(), |_| *at));
            }
            return match bytes.get(group * 4 + 4) {
                Some((after, _)) => refused(*after),
                None => Ok(()),
            };
        }
        if quantum.len() < 4 {
            return refused(quantum[0].0);
        }
    }
    Ok(())
}
