//! How a role says that rights are needed although nobody has used them: all of them, or those that belong to others which were used.
//! Operators print the annotations, and the API server's report on rights reads them. Plain data.

/// The annotation of a Role or ClusterRole whose rights are needed rarely, such as those for renewing certificates: `konverge permissions`
/// keeps them in the least roles and does not count them as unused. Its value is [`KEEP_RIGHTS_VALUE`].
pub const KEEP_RIGHTS: &str = "konverge.dev/keep-rights";

/// The only value that has a meaning.
pub const KEEP_RIGHTS_VALUE: &str = "true";

/// The annotation of a Role or ClusterRole with rights that belong together, because one declaration of an operator brings them: a kind
/// that it owns takes `delete` as well as `create`, although a day may pass without a deletion. Once one of a set was used, `konverge
/// permissions` keeps the others and does not count them as unused. The value is JSON: a list of sets, each a list of rules as a role
/// has them.
pub const RIGHTS_TOGETHER: &str = "konverge.dev/rights-together";
