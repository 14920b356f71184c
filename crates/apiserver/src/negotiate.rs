//! What a client can read and what it sends, by its `Accept` and `Content-Type`. In: the header. Out: one of the
//! media types that this server speaks, or the `Status` with which Kubernetes refuses. Never touches a body.

use konverge_core::Status;

use crate::partial::MetaVersion;

/// The media type of an answer and its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MediaTypeOptions {
    /// What the answer shows of an object.
    pub convert_to: ConvertTo,
    /// JSON, YAML or protobuf.
    pub encoding: Encoding,
    /// Whether the answer is indented for people.
    pub pretty: bool,
}

/// What an answer shows of an object: the parameter `as` of the media type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConvertTo {
    /// The whole object.
    #[default]
    Object,
    /// A row of a `meta.k8s.io` Table.
    Table(MetaVersion),
    /// Metadata only, of one object.
    PartialMetadata(MetaVersion),
    /// Metadata only, of a list.
    PartialMetadataList(MetaVersion),
}

/// How an answer or a body is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`
    #[default]
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// The notation of a body that is an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// An object or a list, which can be converted to metadata or a table.
    Object,
    /// The events of a watch, which can be converted as well, but are never YAML.
    Watch,
    /// Anything else: a failure, legacy discovery.
    Plain,
}

/// The forms of the discovery roots `/api` and `/apis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiscoveryForm {
    /// Names of groups and versions only.
    Legacy(Encoding),
    /// `APIGroupDiscoveryList` of this version.
    Aggregated(DiscoveryVersion),
}

/// A version of `apidiscovery.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DiscoveryVersion {
    /// `v2`
    V2,
    /// `v2beta1`
    V2Beta1,
}

/// What a PATCH does with its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902
    Json,
    /// RFC 7386
    Merge,
    /// With the directives of built-in types.
    Strategic,
    /// Server-side apply.
    Apply,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// In the order of kube-apiserver: the first one that a clause covers is taken.
const SERVED: [(&str, Encoding); 3] =
    [("json", Encoding::Json), ("yaml", Encoding::Yaml), ("vnd.kubernetes.protobuf", Encoding::Protobuf)];

impl MediaTypeOptions {
    /// Reads an `Accept` header. Without one the answer is plain JSON. Whole objects of a kind that only a definition
    /// describes are never protobuf; their metadata can be.
    pub(crate) fn accept(header: Option<&str>, kind: ResponseKind, custom: bool) -> Result<Self, Status> {
        let header = header.unwrap_or_default();
        // What most clients send is what they get without it.
        if header.is_empty() || header == "application/json" {
            return Ok(Self::default());
        }
        // YAML cannot be cut into events.
        let served =
            || SERVED.into_iter().filter(|(_, encoding)| kind != ResponseKind::Watch || *encoding != Encoding::Yaml);
        let is_served = |wanted: &Self| {
            let whole = custom && wanted.convert_to == ConvertTo::Object;
            let table = matches!(wanted.convert_to, ConvertTo::Table(_));
            wanted.encoding != Encoding::Protobuf || !(whole || table)
        };
        for clause in clauses(header) {
            for (subtype, encoding) in served() {
                if clause.covers(subtype)
                    && let Some(wanted) = clause.wanted(encoding, kind).filter(is_served)
                {
                    return Ok(wanted);
                }
            }
        }
        let stream = if kind == ResponseKind::Watch { ";stream=watch" } else { "" };
        Err(not_acceptable(served().map(|(subtype, _)| format!("application/{subtype}{stream}"))))
    }

    /// Refuses a type for one object where there is a list, and the other way round.
    pub(crate) fn check_list(&self, list: bool) -> Result<(), Status> {
        let message = match (self.convert_to, list) {
            (ConvertTo::PartialMetadata(_), true) => {
                "you requested PartialObjectMetadata, but the requested object is a list"
            }
            (ConvertTo::PartialMetadataList(_), false) => {
                "you requested PartialObjectMetadataList, but the requested object is not a list"
            }
            _ => return Ok(()),
        };
        Err(Status::failure(406, "NotAcceptable", message))
    }
}

impl Encoding {
    /// The `Content-Type` of an answer.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => PROTOBUF,
        }
    }

    /// The `Content-Type` of a watch.
    pub(crate) fn content_type_of_watch(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            other => other.content_type(),
        }
    }
}

impl BodyEncoding {
    /// Reads the `Content-Type` of a body that is an object. Without one it is JSON. Kinds that only a definition
    /// describes have no protobuf messages.
    pub(crate) fn of(content_type: Option<&str>, custom: bool) -> Result<Self, Status> {
        match media_type(content_type).as_str() {
            _ if !parameters_are_readable(content_type) => Err(Self::unsupported(custom)),
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            PROTOBUF if !custom => Ok(Self::Protobuf),
            _ => Err(Self::unsupported(custom)),
        }
    }

    fn unsupported(custom: bool) -> Status {
        unsupported(match custom {
            true => "application/json, application/yaml",
            false => "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        })
    }
}

impl DiscoveryForm {
    /// Reads an `Accept` header: the first aggregated form wins over every plain one.
    pub(crate) fn accept(header: Option<&str>) -> Result<Self, Status> {
        let aggregated =
            clauses(header.unwrap_or_default()).iter().filter(|clause| clause.covers("json")).find_map(|clause| {
                match clause.target() {
                    ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => Some(DiscoveryVersion::V2),
                    ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => Some(DiscoveryVersion::V2Beta1),
                    _ => None,
                }
            });
        match aggregated {
            Some(version) => Ok(Self::Aggregated(version)),
            None => {
                MediaTypeOptions::accept(header, ResponseKind::Plain, false).map(|wanted| Self::Legacy(wanted.encoding))
            }
        }
    }
}

impl DiscoveryVersion {
    /// As in `apiVersion`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V2Beta1 => "v2beta1",
        }
    }

    /// The `Content-Type` of the answer, which clients check.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        }
    }
}

impl PatchKind {
    /// Reads the `Content-Type` of a PATCH. Custom resources have no strategic merge patch.
    pub(crate) fn of_body(content_type: Option<&str>, custom: bool) -> Result<Self, Status> {
        // Kubernetes compares the text as it is, without its parameters.
        match content_type.unwrap_or_default().split(';').next().unwrap_or_default() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ if custom => Err(unsupported(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(unsupported(
                "application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }
}

fn not_acceptable(served: impl Iterator<Item = String>) -> Status {
    let served: Vec<String> = served.collect();
    let message = format!("only the following media types are accepted: {}", served.join(", "));
    Status::failure(406, "NotAcceptable", message)
}

fn unsupported(accepted: &str) -> Status {
    let message =
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
    Status::failure(415, "UnsupportedMediaType", message)
}

fn media_type(content_type: Option<&str>) -> String {
    content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether each parameter has a name and a value. A semicolon at the end is no parameter.
fn parameters_are_readable(content_type: Option<&str>) -> bool {
    let Some((_, parameters)) = content_type.and_then(|text| text.split_once(';')) else { return true };
    let parameters = parameters.trim();
    let named =
        |one: &str| one.split_once('=').is_some_and(|(name, value)| !name.trim().is_empty() && !value.is_empty());
    // A quoted value may contain a semicolon.
    parameters.is_empty() || parameters.contains('"') || parameters.trim_end_matches(';').split(';').all(named)
}

/// One alternative of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

/// The alternatives, best first; equals stay in the client's order.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(Clause::parse).collect();
    let wild = |clause: &Clause<'_>| (clause.kind == "*", clause.subtype == "*");
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(wild(a).cmp(&wild(b))));
    clauses
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = match parts.next()? {
            "*" => ("*", "*"),
            range => range.split_once('/')?,
        };
        let mut clause = Self { kind, subtype, quality: 1.0, parameters: Vec::new() };
        for parameter in parts {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key.trim() {
                "q" => clause.quality = value.trim().parse().unwrap_or(1.0),
                key => clause.parameters.push((key, value.trim())),
            }
        }
        // A quality of 0 names what the client cannot read.
        (clause.quality > 0.0).then_some(clause)
    }

    fn covers(&self, subtype: &str) -> bool {
        match (self.kind, self.subtype) {
            ("*", "*") | ("application", "*") => true,
            (kind, own) => kind == "application" && own == subtype,
        }
    }

    fn parameter(&self, key: &str) -> &'a str {
        self.parameters.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| value)
    }

    /// Group, version and kind of what the answer should be turned into; empty for the object itself.
    fn target(&self) -> (&'a str, &'a str, &'a str) {
        (self.parameter("g"), self.parameter("v"), self.parameter("as"))
    }

    fn wanted(&self, encoding: Encoding, kind: ResponseKind) -> Option<MediaTypeOptions> {
        let stream_fits = match self.parameter("stream") {
            "" => true,
            stream => stream == "watch" && encoding != Encoding::Yaml,
        };
        if !stream_fits || !matches!(self.parameter("sv"), "" | "v1") {
            return None;
        }
        let convert_to = match self.target() {
            ("", "", "") => ConvertTo::Object,
            _ if kind == ResponseKind::Plain => return None,
            ("meta.k8s.io", version, kind) => {
                let version = match version {
                    "v1" => MetaVersion::V1,
                    "v1beta1" => MetaVersion::V1Beta1,
                    _ => return None,
                };
                match kind {
                    "Table" => ConvertTo::Table(version),
                    "PartialObjectMetadata" => ConvertTo::PartialMetadata(version),
                    "PartialObjectMetadataList" => ConvertTo::PartialMetadataList(version),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(MediaTypeOptions { convert_to, encoding, pretty: self.parameter("pretty") == "1" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Encoding::{Json, Protobuf, Yaml};
    use MetaVersion::{V1, V1Beta1};
    use ResponseKind::{Object, Plain, Watch};

    #[test]
    fn accept() {
        #[track_caller]
        fn check(header: &str, kind: ResponseKind, expect: Result<(ConvertTo, Encoding), &str>) {
            check_of(false, header, kind, expect);
        }
        #[track_caller]
        fn check_of(custom: bool, header: &str, kind: ResponseKind, expect: Result<(ConvertTo, Encoding), &str>) {
            let got = MediaTypeOptions::accept(Some(header), kind, custom);
            let got = got.map(|wanted| (wanted.convert_to, wanted.encoding)).map_err(|status| {
                assert_eq!((status.code, status.reason.as_str()), (406, "NotAcceptable"));
                status.message
            });
            assert_eq!(got, expect.map_err(str::to_owned), "{header}");
        }
        let json = Ok((ConvertTo::Object, Json));
        let refused = Err("only the following media types are accepted: \
                           application/json, application/yaml, application/vnd.kubernetes.protobuf");
        let protobuf = Ok((ConvertTo::Object, Protobuf));
        check("", Object, json);
        check("*/*", Object, json);
        check("*", Object, json);
        check("application/*", Object, json);
        check("application/json", Object, json);
        check("application/json, */*", Object, json);
        check("application/yaml", Object, Ok((ConvertTo::Object, Yaml)));
        check("application/yaml;q=0.5, application/json;q=0.9", Object, json);
        check("*/*, application/yaml", Object, Ok((ConvertTo::Object, Yaml)));
        check("text/html, application/yaml;q=0.1", Object, Ok((ConvertTo::Object, Yaml)));
        check("application/json;q=0", Object, refused);
        for (custom, first) in [(false, protobuf), (true, json)] {
            check_of(custom, "application/vnd.kubernetes.protobuf, application/json", Object, first);
            check_of(custom, "application/vnd.kubernetes.protobuf,application/json;q=0.9, */*", Object, first);
            check_of(custom, "application/vnd.kubernetes.protobuf;q=0.9,application/json", Object, json);
            check_of(custom, "application/json,application/vnd.kubernetes.protobuf", Object, json);
            check_of(custom, "application/vnd.kubernetes.protobuf;stream=watch, application/json", Watch, first);
            check_of(custom, "application/vnd.kubernetes.protobuf, application/json", Watch, first);
        }
        check("application/vnd.kubernetes.protobuf", Object, protobuf);
        check("application/vnd.kubernetes.protobuf", Plain, protobuf);
        check_of(true, "application/vnd.kubernetes.protobuf", Object, refused);
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
        check(table, Object, refused);
        check(
            &format!("{table},application/json;as=Table;v=v1;g=meta.k8s.io"),
            Object,
            Ok((ConvertTo::Table(V1), Json)),
        );
        check("text/html", Object, refused);
        check("nonsense", Object, refused);

        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                       application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        check(kubectl, Object, Ok((ConvertTo::Table(V1), Json)));
        check(kubectl, Watch, Ok((ConvertTo::Table(V1), Json)));
        check(kubectl, Plain, json);
        check("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Object, Ok((ConvertTo::Table(V1Beta1), Json)));
        check("application/yaml; as=Table; v=v1; g=meta.k8s.io", Object, Ok((ConvertTo::Table(V1), Yaml)));
        check("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Object, json);
        check("application/json;as=Table;v=v1;g=example.com", Object, refused);
        check("application/json;as=Chart;v=v1;g=meta.k8s.io", Object, refused);

        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        for custom in [false, true] {
            check_of(custom, metadata, Object, Ok((ConvertTo::PartialMetadata(V1), Protobuf)));
            check_of(custom, metadata, Watch, Ok((ConvertTo::PartialMetadata(V1), Protobuf)));
        }
        check(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Object,
            Ok((ConvertTo::PartialMetadataList(V1), Json)),
        );

        check("application/json;stream=watch", Watch, json);
        check("application/json;stream=other, */*", Watch, json);
        let refused = Err("only the following media types are accepted: \
                           application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch");
        check("application/yaml", Watch, refused);
        check("application/yaml;stream=watch", Watch, refused);
    }

    #[test]
    fn accept_details() {
        assert_eq!(MediaTypeOptions::accept(None, Object, false).unwrap(), MediaTypeOptions::default());
        assert!(MediaTypeOptions::accept(Some("application/json;pretty=1"), Object, false).unwrap().pretty);
        let check = |convert_to, list, expect| {
            let wanted = MediaTypeOptions { convert_to, ..MediaTypeOptions::default() };
            assert_eq!(wanted.check_list(list).map_err(|status| status.code), expect);
        };
        check(ConvertTo::Object, true, Ok(()));
        check(ConvertTo::Table(V1), false, Ok(()));
        check(ConvertTo::PartialMetadata(V1), false, Ok(()));
        check(ConvertTo::PartialMetadata(V1), true, Err(406));
        check(ConvertTo::PartialMetadataList(V1), true, Ok(()));
        check(ConvertTo::PartialMetadataList(V1), false, Err(406));
    }

    #[test]
    fn accept_of_discovery() {
        #[track_caller]
        fn check(header: Option<&str>, expect: Result<DiscoveryForm, u16>) {
            assert_eq!(DiscoveryForm::accept(header).map_err(|status| status.code), expect, "{header:?}");
        }
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let (in_v2, in_beta) = (DiscoveryVersion::V2, DiscoveryVersion::V2Beta1);
        assert_eq!((in_v2.content_type(), in_beta.content_type()), (v2, beta));
        check(None, Ok(DiscoveryForm::Legacy(Json)));
        check(Some("application/json"), Ok(DiscoveryForm::Legacy(Json)));
        check(Some("application/yaml"), Ok(DiscoveryForm::Legacy(Yaml)));
        check(Some(&format!("{v2},{beta},application/json")), Ok(DiscoveryForm::Aggregated(in_v2)));
        check(Some(&format!("{beta},application/json")), Ok(DiscoveryForm::Aggregated(in_beta)));
        check(Some(&format!("application/json,{v2}")), Ok(DiscoveryForm::Aggregated(in_v2)));
        check(Some(&format!("{v2};profile=nopeer")), Ok(DiscoveryForm::Aggregated(in_v2)));
        check(Some("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList"), Err(406));
        check(Some("text/plain"), Err(406));
    }

    #[test]
    fn bodies() {
        #[track_caller]
        fn check(content_type: Option<&str>, custom: bool, expect: Result<BodyEncoding, &str>) {
            let got = BodyEncoding::of(content_type, custom).map_err(|status| {
                assert_eq!((status.code, status.reason.as_str()), (415, "UnsupportedMediaType"));
                status.message
            });
            assert_eq!(got, expect.map_err(str::to_owned));
        }
        let for_custom = Err("the body of the request was in an unknown format - \
                              accepted media types include: application/json, application/yaml");
        let for_builtin = Err("the body of the request was in an unknown format - accepted media types include: \
                               application/json, application/yaml, application/vnd.kubernetes.protobuf");
        for (custom, refused) in [(false, for_builtin), (true, for_custom)] {
            check(None, custom, Ok(BodyEncoding::Json));
            check(Some("application/json"), custom, Ok(BodyEncoding::Json));
            check(Some("Application/JSON; charset=utf-8"), custom, Ok(BodyEncoding::Json));
            check(Some("application/yaml"), custom, Ok(BodyEncoding::Yaml));
            check(Some("application/cbor"), custom, refused);
            check(Some("text/plain"), custom, refused);
        }
        check(Some("application/vnd.kubernetes.protobuf"), false, Ok(BodyEncoding::Protobuf));
        check(Some("application/vnd.kubernetes.protobuf"), true, for_custom);
    }

    #[test]
    fn patches() {
        #[track_caller]
        fn check(content_type: Option<&str>, custom: bool, expect: Result<PatchKind, &str>) {
            let got = PatchKind::of_body(content_type, custom).map_err(|status| {
                assert_eq!(status.code, 415);
                status.message.split_once("include: ").unwrap().1.to_owned()
            });
            assert_eq!(got, expect.map_err(str::to_owned));
        }
        let for_custom = Err("application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml");
        let for_builtin = Err("application/json-patch+json, application/merge-patch+json, \
                               application/strategic-merge-patch+json, application/apply-patch+yaml");
        check(Some("application/json-patch+json"), true, Ok(PatchKind::Json));
        check(Some("application/merge-patch+json; charset=utf-8"), true, Ok(PatchKind::Merge));
        check(Some("application/apply-patch+yaml"), true, Ok(PatchKind::Apply));
        check(Some("application/strategic-merge-patch+json"), false, Ok(PatchKind::Strategic));
        check(Some("application/strategic-merge-patch+json"), true, for_custom);
        check(Some("application/json"), false, for_builtin);
        check(None, false, for_builtin);
    }
}
