//! Misspelt environment variables. In: the environment. Out: a warning for each `KONVERGE_` variable that no operator knows,
//! in the same words that operators use. `konverge` itself has no such variables: it reads flags, `PORT` and `RUST_LOG`, and
//! hands the others on to the operator that `konverge dev` runs.

use konverge::Settings;

/// Logs a warning for each variable that is probably misspelt.
pub(crate) fn warn_about_unknown() {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    for warning in unknown(variables) {
        tracing::warn!("{warning}");
    }
}

/// The warnings of operators about these variables. Each variable is loaded alone, because the value of one must not hide a
/// warning about another: a bad value is reported by the operator that reads it.
fn unknown(variables: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let ours = variables.into_iter().filter(|(name, _)| name.starts_with("KONVERGE_"));
    let mut warnings: Vec<String> = ours
        .filter_map(|variable| {
            Some(Settings::loader().args(["konverge"]).environment([variable]).load().ok()?.warnings)
        })
        .flatten()
        .collect();
    warnings.sort();
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_named() {
        let check = |variables: &[(&str, &str)], expect: &[&str]| {
            let given = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            assert_eq!(unknown(given), expect, "{variables:?}");
        };
        check(&[("PATH", "/bin"), ("KONVERGE_LOG_LEVEL", "debug")], &[]);
        check(
            &[("KONVERGE_LOG_LEVL", "debug")],
            &["variable KONVERGE_LOG_LEVL is not a setting; did you mean KONVERGE_LOG_LEVEL?"],
        );
        // A bad value does not hide the other variable.
        check(
            &[("KONVERGE_LOG_LEVEL", "loud"), ("KONVERGE_LOG_FORMAR", "text")],
            &["variable KONVERGE_LOG_FORMAR is not a setting; did you mean KONVERGE_LOG_FORMAT?"],
        );
        // The kubelet sets such variables beside a Service whose name begins with konverge.
        check(&[("KONVERGE_SERVICE_HOST", "10.0.0.1")], &[]);
    }
}
