//! Quantities such as `100m` or `1.5Gi`. In: text. Out: the complaint of Kubernetes' parser.

const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Checks the number and the suffix. Kubernetes reads an absent number as zero.
pub(super) fn check(text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(FORMAT.to_owned());
    }
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let after = body.trim_start_matches(|c: char| c.is_ascii_digit());
    let after = after.strip_prefix('.').map_or(after, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    suffix(after)
}

fn suffix(text: &str) -> Result<(), String> {
    const KNOWN: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if KNOWN.contains(&text) {
        return Ok(());
    }
    let letters = text.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let exponent = &text[letters..];
    let signed = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !signed.bytes().all(|b| b.is_ascii_digit()) {
        return Err(FORMAT.to_owned());
    }
    let scientific = matches!(&text[..letters], "e" | "E") && exponent.parse::<i64>().is_ok();
    if scientific { Ok(()) } else { Err(SUFFIX.to_owned()) }
}
