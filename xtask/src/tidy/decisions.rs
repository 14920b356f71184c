//! Checks the changelog and the list of decisions. In: the tree. Out: a missing changelog, decisions that the list does not
//! link, and links to pages that do not exist.

use super::tree::Tree;

const FOLDER: &str = "docs/decisions";

/// A missing changelog.
pub(super) fn changelog(tree: &Tree) -> Vec<String> {
    if tree.has("CHANGELOG.md") { Vec::new() } else { vec!["CHANGELOG.md: is missing".into()] }
}

/// Pages of decisions that `README.md` there does not link, and links of it to pages that are not there.
pub(super) fn linked(tree: &Tree) -> Vec<String> {
    let index = format!("{FOLDER}/README.md");
    let Some(list) = tree.text(&index) else { return vec![format!("{index}: is missing")] };
    let links: Vec<&str> = list.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()).collect();
    let pages = tree.texts().filter_map(|(path, _)| path.strip_prefix(FOLDER)?.strip_prefix('/'));
    let pages: Vec<&str> = pages.filter(|page| page.ends_with(".md") && *page != "README.md").collect();
    let unlinked =
        pages.iter().filter(|page| !links.contains(page)).map(|page| format!("{index}: does not link {page}"));
    let local = links.iter().filter(|link| link.ends_with(".md") && !link.contains('/'));
    let gone =
        local.filter(|link| !pages.contains(link)).map(|link| format!("{index}: links {link}, which is not there"));
    unlinked.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_changelog() {
        assert_eq!(changelog(&Tree::of(&[])), ["CHANGELOG.md: is missing"]);
        assert!(changelog(&Tree::of(&[("CHANGELOG.md", "")])).is_empty());
    }

    #[test]
    fn decisions_are_linked_both_ways() {
        let check = |list: Option<&str>, expect: &[&str]| {
            let mut files = vec![("docs/decisions/0001-a.md", ""), ("docs/decisions/0002-b.md", "")];
            files.extend(list.map(|list| ("docs/decisions/README.md", list)));
            let expect: Vec<_> = expect.iter().map(|problem| format!("docs/decisions/README.md: {problem}")).collect();
            assert_eq!(linked(&Tree::of(&files)), expect, "{list:?}");
        };
        check(Some("[a](0001-a.md) [b](0002-b.md#why) [up](../README.md) [web](https://example.com)"), &[]);
        check(Some("[a](0001-a.md)"), &["does not link 0002-b.md"]);
        check(Some("[a](0001-a.md) [b](0002-b.md) [c](0003-c.md)"), &["links 0003-c.md, which is not there"]);
        check(None, &["is missing"]);
    }
}
