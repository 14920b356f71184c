//! What the webhooks decide, the same in every server: images have a tag other than `latest`, and Pods get a label. Pure.

use std::collections::BTreeMap;

/// The label that every Pod gets.
pub(super) const LABEL: &str = "example.com/reviewed";
/// Its value.
pub(super) const VALUE: &str = "true";

/// The first image without a tag, or with the tag `latest`.
pub(super) fn unpinned<'a>(images: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    images.into_iter().find(|image| match image.rsplit_once('/').map_or(*image, |(_, name)| name).split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => true,
    })
}

/// Adds the label.
pub(super) fn label(labels: &mut BTreeMap<String, String>) {
    labels.insert(LABEL.to_owned(), VALUE.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_need_a_tag() {
        for (image, expect) in [
            ("registry.example.com:5000/shop/web:v1", None),
            ("registry.example.com:5000/shop/web", Some("registry.example.com:5000/shop/web")),
            ("web:latest", Some("web:latest")),
            ("web@sha256:0123", None),
        ] {
            assert_eq!(unpinned([image]), expect, "{image}");
        }
    }
}
