//! Creates of different kinds and forms, beside each other: a ConfigMap as JSON and as protobuf, a custom resource without rules and
//! with five of them. Out: CPU per create and their relations; and the time of a start with a hundred definitions.

use std::time::Duration;

use super::load::{self, Until};
use crate::child::{ServerProgram, Storage, Transport};
use crate::http;
use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;
use crate::meter::Spent;
use crate::report::{Figure, Figures};
use crate::widget::{self, DEFINITIONS};

/// How often the forms take turns.
const ROUNDS: usize = 3;
const CLIENTS: usize = 16;
pub(super) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINED: usize = 100;

/// Rules as people write them: comparisons, a choice, a pattern, a list, a text.
const RULES: [&str; 5] = [
    "self.size >= 0 && self.size <= 1000",
    "!has(self.color) || self.color in ['red', 'green', 'blue']",
    "self.payload.size() > 0",
    "!has(self.tags) || self.tags.all(tag, tag != '')",
    "self.sequence >= 0 || self.payload.startsWith('x')",
];

/// One form of a create: its name and the request with this number.
type Form = (&'static str, fn(usize) -> Vec<u8>);

const BUILT_IN: [Form; 2] = [("ConfigMap, JSON", config_map), ("ConfigMap, protobuf", protobuf)];
const CUSTOM: [Form; 2] = [
    ("custom resource", |number| http::request("POST", widget::WIDGETS, "application/json", &widget::widget(number))),
    ("custom resource with five rules", ruled),
];

pub(super) async fn measure(program: &ServerProgram, time: Duration, starts: usize) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    for (forms, aim) in [(BUILT_IN, None), (CUSTOM, Some(1.3))] {
        let server = program.start_with_widgets(Storage::Memory, Transport::Plain).await?;
        let ruled = widget::definition_of("ruled", &RULES);
        server.endpoint.once(&http::request("POST", DEFINITIONS, "application/json", &ruled), 201).await?;
        let mut costs = [(Spent::default(), 0); 2];
        let mut first = 0;
        for _ in 0..ROUNDS {
            for ((_, request), cost) in forms.into_iter().zip(&mut costs) {
                let created = load::create_with(&server, CLIENTS, first, Until::Elapsed(time), request).await?;
                first += created.count;
                *cost = (cost.0.and(&created.spent), cost.1 + created.count);
            }
        }
        for ((name, _), (spent, count)) in forms.into_iter().zip(costs) {
            figures.disturbed(&spent);
            let note = format!("{count} creates by {CLIENTS} clients");
            figures
                .add(Figure::cost(format!("CPU, create of a {name}"), spent.server_each(count), "µs").with_note(note));
        }
        let [one, other] = costs.map(|(spent, count)| spent.server_each(count));
        let relation = Figure::cost(format!("{} to {}", forms[1].0, forms[0].0), other / one, "x");
        figures.add(match aim {
            Some(aim) => relation.with_aim(aim),
            None => relation,
        });
    }
    start_with_definitions(program, starts, &mut figures).await?;
    Ok(figures)
}

/// Starts a server that has a hundred definitions on its disk.
async fn start_with_definitions(
    program: &ServerProgram,
    starts: usize,
    figures: &mut Figures,
) -> Result<(), InvalidRun> {
    let mut server = program.start(Storage::Disk, Transport::Plain).await?;
    for number in 0..DEFINED {
        let definition = widget::definition_of(&format!("kind{number}"), &RULES);
        server.endpoint.once(&http::request("POST", DEFINITIONS, "application/json", &definition), 201).await?;
    }
    let (mut ready, mut cpu) = (Latencies::default(), Latencies::default());
    for _ in 0..starts {
        server = program.restart(server).await?;
        ready.record(server.started.ready);
        cpu.record(server.started.cpu);
    }
    // The kinds are served as soon as the server says that it is ready.
    server.endpoint.once(&http::get(&widget::path_of("kind99")), 200).await?;
    let memory = server.process().memory()?;
    for (what, times) in [("exec to ready line", &ready), ("CPU to ready", &cpu)] {
        figures.add(Figure::cost(format!("{what}, {DEFINED} definitions with rules"), times.millis(0.5), "ms"));
    }
    figures.add(Figure::cost(format!("resident, {DEFINED} definitions"), memory.rss as f64 / 1e6, "MB"));
    Ok(())
}

fn ruled(number: usize) -> Vec<u8> {
    let body = String::from_utf8_lossy(&widget::widget(number)).replace("\"kind\":\"Widget\"", "\"kind\":\"Ruled\"");
    http::request("POST", &widget::path_of("ruled"), "application/json", body.as_bytes())
}

/// Creates a ConfigMap with the text of a widget.
pub(super) fn config_map(number: usize) -> Vec<u8> {
    http::request("POST", CONFIG_MAPS, "application/json", config_map_object(number).to_string().as_bytes())
}

/// The ConfigMap itself.
pub(super) fn config_map_object(number: usize) -> serde_json::Value {
    let text = String::from_utf8_lossy(&widget::widget(number)).into_owned();
    serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": widget::name(number), "labels": {"app": "bench"}},
        "data": {"text": text},
    })
}

/// The same in Kubernetes' protobuf envelope.
fn protobuf(number: usize) -> Vec<u8> {
    let pair = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
    let metadata = [field(1, widget::name(number).as_bytes()), field(11, &pair(b"app", b"bench"))].concat();
    let message = [field(1, &metadata), field(2, &pair(b"text", &widget::widget(number)))].concat();
    let names = pair(b"v1", b"ConfigMap");
    let body = [b"k8s\0".to_vec(), field(1, &names), field(2, &message)].concat();
    http::request("POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf", &body)
}

/// A field of a message that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}
