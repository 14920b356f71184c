//! Role-based access control among many roles and bindings. Out: the time of a decision, measured in this process, and what a
//! create takes under RBAC beside one that nobody decides about: two servers with the same objects and users that take turns.

mod decisions;
mod roles;

use std::path::Path;

use super::Scale;
use super::kinds;
use super::load::{self, Created, Until};
use crate::child::{Access, Server, ServerProgram};
use crate::compare::{median, ratio};
use crate::http;
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::report::{Figure, Figures};

const CLIENTS: usize = 16;

/// The user who creates, and the one who may do everything.
const TOKEN: &str = "token-of-the-user";
const ADMINISTRATOR_TOKEN: &str = "token-of-the-administrator";

/// The aim for a create under RBAC beside one without.
const AIM: f64 = 1.05;

/// The modes that are compared; the first is the one without RBAC.
const MODES: [&str; 2] = ["AlwaysAllow", "RBAC"];

pub(super) fn title() -> String {
    format!("{} roles and {} bindings", roles::ROLES, roles::BINDINGS)
}

/// Runs the stage.
pub(super) async fn measure(program: &ServerProgram, scale: &Scale) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    decisions::measure(&mut figures, scale.compared).await?;
    let tokens = tempfile::NamedTempFile::new()?;
    std::fs::write(
        tokens.path(),
        format!("{TOKEN},{},1\n{ADMINISTRATOR_TOKEN},administrator,2,\"system:masters\"\n", roles::user(0)),
    )?;
    let mut servers = Vec::new();
    for mode in MODES {
        servers.push(start(program, mode, tokens.path()).await?);
    }
    let mut samples: [Vec<Created>; 2] = Default::default();
    let mut first = 0;
    for _ in 0..scale.compared {
        for (server, samples) in servers.iter().zip(&mut samples) {
            let until = Until::Number(first + scale.compared_creates);
            let created = load::create_with(server, CLIENTS, first, until, config_map).await?;
            first += created.count;
            figures.disturbed(&created.spent);
            samples.push(created);
        }
    }
    add(&mut figures, samples);
    Ok(figures)
}

/// Starts a server and fills it with roles and bindings.
async fn start(program: &ServerProgram, mode: &'static str, tokens: &Path) -> Result<Server, InvalidRun> {
    let server = program.start_for(Access::Tokens { file: tokens, mode }).await?;
    // A namespace has to be there before its roles, and roles before bindings that are checked against them.
    for (first, last) in roles::GROUPS {
        let create = |number| {
            let (path, object) = roles::object(number);
            http::request_as(ADMINISTRATOR_TOKEN, "POST", &path, "application/json", object.to_string().as_bytes())
        };
        load::create_with(&server, CLIENTS, first, Until::Number(last), create).await?;
    }
    // Only one of the two servers lets the user do what no role allows.
    let forbidden = http::request_as(TOKEN, "GET", "/api/v1/nodes", "", &[]);
    let answer = server.endpoint.connect().await?.send(&forbidden).await?;
    expect("the answer to what no role allows", answer.status, if mode == "RBAC" { 403 } else { 200 })?;
    Ok(server)
}

/// A ConfigMap in the namespace of the user, which the last one of their roles allows.
fn config_map(number: usize) -> Vec<u8> {
    let object = kinds::config_map_object(number).to_string();
    let path = format!("/api/v1/namespaces/{}/configmaps", roles::namespace(0));
    http::request_as(TOKEN, "POST", &path, "application/json", object.as_bytes())
}

fn add(figures: &mut Figures, samples: [Vec<Created>; 2]) {
    let cpu = samples
        .each_ref()
        .map(|samples| samples.iter().map(|created| created.spent.server_each(created.count)).collect::<Vec<f64>>());
    for ((mode, samples), cpu) in MODES.into_iter().zip(samples).zip(&cpu) {
        let mut latencies = Latencies::default();
        samples.into_iter().for_each(|created| latencies.extend(created.latencies));
        let figure = Figure::cost(format!("CPU of a create, {mode}"), median(cpu), "µs");
        figures.add(figure.with_note(format!("{CLIENTS} clients; {}", latencies.summary())));
    }
    let [without, with] = &cpu;
    let relation = ratio(with, without);
    let figure = Figure::cost("create under RBAC to one without", relation.middle, "x").with_aim(AIM);
    figures.add(figure.with_note(format!("{:.3}–{:.3}", relation.low, relation.high)));
}
