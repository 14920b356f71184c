//! The first document of a YAML body, which is all that kube-apiserver reads. In: bytes. Out: the bytes of that document. Looks at
//! lines only: a line that begins with `---` or `...` ends a document also within a text.

/// The first document.
pub(super) fn first(body: &[u8]) -> &[u8] {
    let (mut begun, mut end) = (false, 0);
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let is = |marker: &[u8]| {
            line.strip_prefix(marker).is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
        };
        let marker = is(b"---") || is(b"...");
        if marker && begun {
            return &body[..end];
        }
        let shown = line.trim_ascii_start();
        begun |= marker || !(shown.is_empty() || shown.starts_with(b"#") || line.starts_with(b"%"));
        end += line.len();
    }
    body
}

/// Whether a tab stands before everything else but comments: Go's parser refuses that.
pub(super) fn begins_with_tab(body: &[u8]) -> bool {
    for line in body.split(|byte| *byte == b'\n') {
        let shown = line.trim_ascii_start();
        let indent = &line[..line.len() - shown.len()];
        if indent.contains(&b'\t') {
            return true;
        }
        if !shown.is_empty() && !shown.starts_with(b"#") {
            return false;
        }
    }
    false
}
