//! Connections to the ports of a pod: `port-forward`. In: pairs of streams, one for data and one for an error, each pair a
//! connection. Out: what the simulated pod answers on them, or why nobody answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::simulation::{HttpConnection, Simulation};

use super::{Conversation, Event, Wire};

/// A client that forwards ports.
pub(crate) struct PortForward {
    simulation: Arc<Simulation>,
    /// The connections by the id that their client gave them.
    pairs: BTreeMap<String, Pair>,
    /// The ports that the channels of a WebSocket are for; without channels, the client opens streams.
    channels: Vec<u16>,
    over: bool,
}

/// The two streams of a connection.
#[derive(Default)]
struct Pair {
    port: u16,
    data: Option<u32>,
    error: Option<u32>,
    /// Who answers, once both streams are there.
    connection: Option<HttpConnection>,
}

impl PortForward {
    /// Forwards to a pod: to these ports over channels, or to those that the client opens streams for.
    pub(crate) fn new(simulation: Simulation, channels: Vec<u16>) -> Self {
        Self { simulation: Arc::new(simulation), pairs: BTreeMap::new(), channels, over: false }
    }

    fn opened(&mut self, stream: u32, headers: &[(String, String)], wire: &mut dyn Wire) {
        let header = |name: &str| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let port = header("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
        let (Some(port), Some(kind @ ("data" | "error"))) = (port, header("streamtype")) else {
            return wire.reset(stream);
        };
        // Older clients give no id, and open the data stream right after the error stream.
        let id = header("requestid")
            .map_or_else(|| if kind == "error" { stream } else { stream.wrapping_sub(2) }.to_string(), str::to_owned);
        wire.accept(stream);
        let pair = self.pairs.entry(id.clone()).or_insert_with(|| Pair { port, ..Pair::default() });
        let place = if kind == "data" { &mut pair.data } else { &mut pair.error };
        if place.is_some() {
            let why = format!("error processing stream for request {id}: {kind} stream already assigned");
            if let Some(error) = pair.error {
                wire.send(error, why.as_bytes());
            }
            return wire.reset(stream);
        }
        *place = Some(stream);
        self.connect(&id, wire);
    }

    /// Begins the connection of a pair that is complete.
    fn connect(&mut self, id: &str, wire: &mut dyn Wire) {
        let Some(Pair { port, data: Some(data), error: Some(error), connection }) = self.pairs.get_mut(id) else {
            return;
        };
        match HttpConnection::open(&self.simulation, *port) {
            Ok(open) => *connection = Some(open),
            Err(why) => {
                let Simulation { uid, .. } = &*self.simulation;
                let message = format!("error forwarding port {port} to pod {uid}, uid : {why}");
                wire.send(*error, message.as_bytes());
                wire.close(*error);
                wire.close(*data);
                wire.reset(*data);
                wire.reset(*error);
                self.pairs.remove(id);
            }
        }
    }

    fn id(&self, stream: u32) -> Option<String> {
        let mut pairs = self.pairs.iter();
        pairs.find(|(_, pair)| pair.data == Some(stream) || pair.error == Some(stream)).map(|(id, _)| id.clone())
    }

    fn data(&mut self, stream: u32, bytes: &[u8], wire: &mut dyn Wire) {
        let Some(id) = self.id(stream) else { return };
        let Some(Pair { data: Some(data), connection: Some(connection), .. }) = self.pairs.get_mut(&id) else { return };
        if *data != stream {
            return;
        }
        let answer = connection.receive(bytes);
        wire.send(stream, &answer);
        if connection.is_closed() {
            self.end(&id, wire);
        }
    }

    /// Closes a connection from the pod's side.
    fn end(&mut self, id: &str, wire: &mut dyn Wire) {
        let Some(pair) = self.pairs.remove(id) else { return };
        for stream in [pair.data, pair.error].into_iter().flatten() {
            wire.close(stream);
        }
        // Over channels each connection is there once; the last one ends all.
        self.over = !self.channels.is_empty() && self.pairs.is_empty();
    }
}

impl Conversation for PortForward {
    fn begin(&mut self, wire: &mut dyn Wire) {
        for (number, port) in self.channels.clone().into_iter().enumerate() {
            let (data, error) = (number as u32 * 2, number as u32 * 2 + 1);
            wire.send(data, &port.to_le_bytes());
            wire.send(error, &port.to_le_bytes());
            let id = number.to_string();
            self.pairs.insert(id.clone(), Pair { port, data: Some(data), error: Some(error), connection: None });
            self.connect(&id, wire);
        }
        self.over = !self.channels.is_empty() && self.pairs.is_empty();
    }

    fn event(&mut self, event: Event, wire: &mut dyn Wire) {
        match event {
            Event::Opened { stream, headers } => self.opened(stream, &headers, wire),
            Event::Data { stream, bytes } => self.data(stream, &bytes, wire),
            Event::Closed { stream } => {
                if let Some(id) = self.id(stream).filter(|id| self.pairs[id].data == Some(stream)) {
                    self.end(&id, wire);
                }
            }
            Event::Reset { stream } => {
                if let Some(id) = self.id(stream) {
                    self.end(&id, wire);
                }
            }
            Event::GoneAway => self.over = true,
        }
    }

    fn target_ended(&mut self, _: &mut dyn Wire) {
        self.over = true;
    }

    fn setup_limit(&self) -> Option<Duration> {
        None
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests;
