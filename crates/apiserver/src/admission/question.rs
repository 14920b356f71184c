//! What expressions ask the authorizer. In: an evaluation that may stop at a question. Out: its result, with every question
//! answered. The answers hold for one request, so that all its policies see the same.

use konverge_cel::{About, Permission, Permissions, Question, Stop, Subject};
use konverge_core::{FieldSelector, Status};

use crate::admission::Attributes;
use crate::authorize::{Attributes as Asked, Authorizer, Decision, ResourceAttributes};
use crate::user::UserInfo;
use crate::work::over_budget;

/// Evaluates, and again after each question that has no answer yet. How often is bounded by what asking costs.
pub(crate) async fn evaluate<T>(
    attributes: &Attributes<'_>,
    permissions: &mut Permissions,
    mut evaluate: impl FnMut(&Permissions) -> Result<T, Stop>,
) -> Result<T, Status> {
    loop {
        match evaluate(permissions) {
            Ok(done) => return Ok(done),
            Err(Stop::Ask(question)) => {
                let answer = ask(attributes, &question).await;
                permissions.insert(*question, answer);
            }
            Err(stop) => {
                attributes.budget.check().map_err(over_budget)?;
                return Err(Status::internal(stop));
            }
        }
    }
}

async fn ask(attributes: &Attributes<'_>, question: &Question) -> Permission {
    let account;
    let user = match &question.subject {
        Subject::Requester => &*attributes.context.user,
        Subject::ServiceAccount { namespace, name } => {
            account = UserInfo {
                groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")],
                ..UserInfo::named(format!("system:serviceaccount:{namespace}:{name}"))
            };
            &account
        }
    };
    // A selector that cannot be read selects nothing for the authorizer to go by, as in kube-apiserver.
    let fields = match &question.about {
        About::Resource(check) if !check.field_selector.is_empty() => FieldSelector::parse(&check.field_selector).ok(),
        _ => None,
    };
    let (path, resource) = match &question.about {
        About::Path(path) => (path.as_str(), None),
        About::Resource(check) => {
            let resource = ResourceAttributes {
                group: &check.group,
                version: "*",
                resource: &check.resource,
                subresource: &check.subresource,
                namespace: &check.namespace,
                name: &check.name,
                fields: fields.as_ref(),
            };
            ("", Some(resource))
        }
    };
    let asked = Asked { user, verb: &question.verb, path, resource };
    match attributes.server.authorizer.authorize(asked).await {
        Decision::Allow { reason } => Permission { allowed: true, reason, error: None },
        Decision::Deny { reason } | Decision::NoOpinion { reason } => {
            Permission { allowed: false, reason, error: None }
        }
    }
}
