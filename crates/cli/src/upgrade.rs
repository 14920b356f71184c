//! Hands over what a client sends after an upgrade: the listener has it, the API server reads it, and neither knows the other.

use futures_util::stream;
use http::Request;

use konverge_apiserver::ClientStream;
use konverge_serve::ClientMessages;

/// Puts what the listener has of a client where the API server looks for it.
pub(crate) fn hand_over<B>(request: &mut Request<B>) {
    let Some(messages) = request.extensions_mut().remove::<ClientMessages>() else { return };
    request.extensions_mut().insert(ClientStream::new(move || {
        let messages = messages.take()?;
        Some(stream::unfold(messages, |mut messages| async move { Some((messages.recv().await?, messages)) }))
    }));
}
