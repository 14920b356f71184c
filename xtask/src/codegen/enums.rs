//! In: `zz_generated.openapi.go`, the one published place that lists the values of enumerated fields. Out: values by
//! type and field. It reads only three kinds of lines and relies on gofmt's indentation; it is not a Go parser.

use std::collections::BTreeMap;

/// The published values of enumerated fields of `io.k8s.api` types.
#[derive(Debug, Default)]
pub(super) struct Enums(BTreeMap<(String, String), Vec<String>>);

impl Enums {
    /// Scans the Go file.
    pub(super) fn read(go: &str) -> Result<Self, String> {
        let mut found = BTreeMap::new();
        let (mut ty, mut field) = (None, None);
        for (number, line) in go.lines().enumerate() {
            let at = |problem: &str| format!("line {}: {problem}: {}", number + 1, line.trim());
            let text = line.trim_start_matches('\t');
            match line.len() - text.len() {
                0 if text.starts_with("func ") => (ty, field) = (type_of(text), None),
                // Properties of the type itself; a nested object would sit deeper.
                5 => {
                    if let Some(name) = text.strip_suffix(": {") {
                        field = Some(string(name).ok_or_else(|| at("a property name that cannot be read"))?);
                    }
                }
                // The field's own values, or those of its items.
                7 | 10 if text.starts_with("Enum:") => {
                    let Some(ty) = &ty else { continue };
                    let field: &String = field.as_ref().ok_or_else(|| at("values outside of a property"))?;
                    let values = values(text).ok_or_else(|| at("values that cannot be read"))?;
                    if found.insert((String::clone(ty), field.clone()), values).is_some() {
                        return Err(at("a second list of values for one field"));
                    }
                }
                _ if text.starts_with("Enum:") => return Err(at("values at an unknown depth")),
                _ => {}
            }
        }
        Ok(Self(found))
    }

    /// The values of a field of a type.
    pub(super) fn of(&self, ty: &str, field: &str) -> Option<&[String]> {
        self.0.get(&(ty.to_owned(), field.to_owned())).map(Vec::as_slice)
    }

    /// Every type and field with values.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.keys().map(|(ty, field)| (ty.as_str(), field.as_str()))
    }
}

/// `func schema_k8sio_api_core_v1_Pod(` is `io.k8s.api.core.v1.Pod`. Functions of other packages have no values
/// that the tables use.
fn type_of(line: &str) -> Option<String> {
    let name = line.strip_prefix("func schema_k8sio_api_")?.split_once('(')?.0;
    Some(format!("io.k8s.api.{}", name.replace('_', ".")))
}

/// `Enum: []interface{}{"A", "B"},`; Go's plain strings are JSON's.
fn values(line: &str) -> Option<Vec<String>> {
    let list = line.split_once("[]interface{}{")?.1.strip_suffix("},")?;
    serde_json::from_str(&format!("[{list}]")).ok()
}

fn string(quoted: &str) -> Option<String> {
    serde_json::from_str(quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type, field, values.
    type Row = (&'static str, &'static str, &'static [&'static str]);

    fn check(go: &str, expect: Result<&[Row], &str>) {
        match (Enums::read(go), expect) {
            (Ok(enums), Ok(rows)) => {
                assert_eq!(enums.keys().count(), rows.len(), "{enums:?}");
                for (ty, field, values) in rows {
                    assert_eq!(enums.of(ty, field).unwrap(), *values);
                }
            }
            (Err(problem), Err(expect)) => assert_eq!(problem, expect),
            (got, expect) => panic!("{got:?} is not {expect:?}"),
        }
    }

    #[test]
    fn reads_values_of_fields_and_items() {
        let go = "func schema_k8sio_api_core_v1_Spec(ref r) d {\n\
                  \t\t\t\t\t\"policy\": {\n\t\t\t\t\t\t\tEnum: []interface{}{\"A\", \"b c\"},\n\
                  \t\t\t\t\t\"modes\": {\n\t\t\t\t\t\t\t\t\t\tEnum: []interface{}{\"\", \"X\"},\n\
                  }\nfunc schema_pkg_apis_kubelet_v1_Config(ref r) d {\n\
                  \t\t\t\t\t\"other\": {\n\t\t\t\t\t\t\tEnum: []interface{}{\"Z\"},\n";
        check(
            go,
            Ok(&[
                ("io.k8s.api.core.v1.Spec", "policy", &["A", "b c"]),
                ("io.k8s.api.core.v1.Spec", "modes", &["", "X"]),
            ]),
        );
        check("func other() {\n\treturn\n}\n", Ok(&[]));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let head = "func schema_k8sio_api_core_v1_Spec(ref r) d {\n";
        check(
            &format!("{head}\t\t\t\t\t\t\tEnum: []interface{{}}{{\"A\"}},\n"),
            Err("line 2: values outside of a property: Enum: []interface{}{\"A\"},"),
        );
        check(
            &format!("{head}\t\t\t\t\t\"f\": {{\n\t\t\tEnum: []interface{{}}{{\"A\"}},\n"),
            Err("line 3: values at an unknown depth: Enum: []interface{}{\"A\"},"),
        );
        check(
            &format!("{head}\t\t\t\t\t\"f\": {{\n\t\t\t\t\t\t\tEnum: names,\n"),
            Err("line 3: values that cannot be read: Enum: names,"),
        );
    }
}
