//! How long a decision takes: the API server in this process, asked whether users may make requests. The time has the reading of
//! the request's path in it, and for a denial the making of the answer.

use std::time::{Duration, Instant};

use http::request::Parts;
use http::{Method, Request};
use konverge_apiserver::{ApiServer, AuthorizationMode, Options, UserInfo};
use kube::Client;
use serde_json::json;

use super::roles;
use crate::compare::median;
use crate::invalid_run::{InvalidRun, expect};
use crate::process::Process;
use crate::report::{Figure, Figures};

/// Decisions in a round.
const DECISIONS: usize = 50_000;
/// Decisions in a round about somebody who has all bindings.
const HARD_DECISIONS: usize = 1_000;

/// The aim for a decision, in µs.
const AIM: f64 = 5.0;

/// A question, and whether the answer is yes.
struct Question {
    user: UserInfo,
    parts: Parts,
    allowed: bool,
}

/// Runs this part of the stage.
pub(super) async fn measure(figures: &mut Figures, rounds: usize) -> Result<(), InvalidRun> {
    let options = Options { authorization: vec![AuthorizationMode::Rbac], ..Options::default() };
    let server = ApiServer::open(options).await.map_err(|error| InvalidRun::new(error.to_string()))?;
    let administrator = UserInfo { groups: vec!["system:masters".to_owned()], ..UserInfo::named("administrator") };
    let client = Client::new(server.acting_as(administrator), "default");
    for (first, last) in roles::GROUPS {
        for number in first..last {
            let (path, object) = roles::object(number);
            create(&client, &path, object.to_string()).await?;
        }
    }
    for (name, method, plural, allowed) in [
        ("allowed by the last of ten bindings", Method::POST, "configmaps", true),
        ("denied, none of ten bindings is about it", Method::GET, "resourcequotas", false),
    ] {
        let ask = |number: usize| -> Result<Question, InvalidRun> {
            let groups = vec!["system:authenticated".to_owned()];
            let path = format!("/api/v1/namespaces/{}/{plural}", roles::namespace_of(number));
            let user = UserInfo { groups, ..UserInfo::named(roles::user(number)) };
            Ok(Question { user, parts: parts(&method, &path)?, allowed })
        };
        let questions: Vec<Question> = (0..roles::USERS).map(ask).collect::<Result<_, _>>()?;
        figures.add(decide(&server, name, &questions, DECISIONS, rounds).await?.with_aim(AIM));
    }
    // The worst that this number of bindings can be: all of them are of one user in one namespace.
    let subject = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "everywhere@example.com"}]);
    for number in 0..roles::BINDINGS {
        let binding = roles::binding(&format!("everywhere-{number}"), number % 10, subject.clone());
        create(&client, &roles::path(0, "rolebindings"), binding.to_string()).await?;
    }
    let parts = parts(&Method::GET, &format!("/api/v1/namespaces/{}/resourcequotas", roles::namespace(0)))?;
    let user = UserInfo::named("everywhere@example.com");
    let name = format!("denied, {} more bindings are all of the user", roles::BINDINGS);
    let question = Question { user, parts, allowed: false };
    figures.add(decide(&server, &name, &[question], HARD_DECISIONS, rounds).await?);
    Ok(())
}

/// Decides about the questions in turn.
async fn decide(
    server: &ApiServer,
    name: &str,
    questions: &[Question],
    decisions: usize,
    rounds: usize,
) -> Result<Figure, InvalidRun> {
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    let each = |time: Duration| time.as_secs_f64() * 1e6 / decisions as f64;
    for _ in 0..rounds {
        let (began, cpu_before) = (Instant::now(), Process::own().cpu_exact()?);
        for question in questions.iter().cycle().take(decisions) {
            let decided = server.authorize_request(&question.user, &question.parts).await;
            expect(name, decided.is_ok(), question.allowed)?;
        }
        cpu.push(each(Process::own().cpu_exact()?.saturating_sub(cpu_before)));
        wall.push(each(began.elapsed()));
    }
    let figure = Figure::cost(format!("CPU of a decision: {name}"), median(&cpu), "µs");
    Ok(figure.with_note(format!("{:.2} µs by the clock", median(&wall))))
}

fn parts(method: &Method, path: &str) -> Result<Parts, InvalidRun> {
    let request = Request::builder().method(method).uri(path).body(());
    Ok(request.map_err(|error| InvalidRun::new(error.to_string()))?.into_parts().0)
}

async fn create(client: &Client, path: &str, object: String) -> Result<(), InvalidRun> {
    let request = Request::post(path).header("content-type", "application/json").body(object.into_bytes());
    let request = request.map_err(|error| InvalidRun::new(error.to_string()))?;
    let created = client.request_text(request).await;
    created.map(drop).map_err(|error| InvalidRun::new(format!("creating at {path}: {error}")))
}
