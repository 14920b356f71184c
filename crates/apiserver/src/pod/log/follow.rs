//! A log that is followed. In: changes of a pod, and the time. Out: lines that are due, and for a log that is not prescribed, a
//! line for each change of the container's state; until the container ends, the pod is gone, or the server closes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;

use konverge_store::{Change, Watch};

use crate::env::Environment;
use crate::pod::container::status_of;
use crate::resource::Resource;

use super::LogOptions;
use super::lines::{Line, Run, state_line};

/// How many changes of a followed pod are read at a time; they share the store's bytes.
const BATCH: usize = 16;

/// A container whose log is followed.
pub(super) struct Following {
    pub resource: Arc<Resource>,
    pub env: Arc<dyn Environment>,
    pub options: LogOptions,
    pub key: Arc<str>,
    pub container: String,
    pub run: Run,
    /// Prescribed lines that are not due yet.
    pub coming: VecDeque<Line>,
    /// The last line about the container's state, if the log is not prescribed.
    pub last_state: Option<String>,
}

impl Following {
    /// The lines so far, and those that follow.
    pub(super) fn text_and_news(
        self,
        text: String,
        watch: Watch,
        closing: impl Future<Output = ()> + Send + 'static,
    ) -> impl Stream<Item = Bytes> + Send + 'static {
        let first = (!text.is_empty()).then(|| Bytes::from(text));
        let news = stream::unfold(Some((self, watch)), |following| async move {
            let (mut this, mut watch) = following?;
            loop {
                let (lines, over) = this.next(&mut watch).await?;
                let text = this.options.text(&lines);
                let over = over || this.options.is_full();
                if over || !text.is_empty() {
                    return Some((Bytes::from(text), (!over).then_some((this, watch))));
                }
            }
        });
        stream::iter(first).chain(news.take_until(closing))
    }

    /// Waits for the next lines. Returns whether they are the last ones; nothing if changes were compacted: then the log ends,
    /// and the client may ask again.
    async fn next(&mut self, watch: &mut Watch) -> Option<(Vec<Line>, bool)> {
        let wait = self.coming.front().map(|line| line.time.duration_since(self.env.now()));
        let due = async {
            match wait {
                Some(wait) => tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => Some((self.due(None), false)),
            changes = watch.next(BATCH) => self.changed(&changes.ok()?).await,
        }
    }

    /// Prescribed lines that are due; those up to its end of a container that has ended.
    fn due(&mut self, run: Option<&Run>) -> Vec<Line> {
        let until = run.and_then(Run::end).unwrap_or_else(|| self.env.now());
        let many = self.coming.iter().take_while(|line| line.time <= until).count();
        self.coming.drain(..many).collect()
    }

    async fn changed(&mut self, changes: &[Change]) -> Option<(Vec<Line>, bool)> {
        let mut lines = Vec::new();
        let key = self.key.clone();
        for change in changes.iter().filter(|change| change.key == key) {
            let Some(after) = &change.after else { return Some((lines, true)) };
            let pod = self.resource.read_object(after).await.ok()?;
            lines.extend(self.state_line(&pod));
            let run = Run::of(&pod, &self.container, false).ok();
            if run.as_ref() != Some(&self.run) {
                // A container that runs again has ended before that.
                let ended = run.filter(|run| run.end().is_some());
                let ended = ended.or_else(|| Run::of(&pod, &self.container, true).ok());
                lines.extend(self.due(ended.as_ref()));
                return Some((lines, true));
            }
        }
        Some((lines, false))
    }

    fn state_line(&mut self, pod: &Value) -> Option<Line> {
        let last = self.last_state.as_mut()?;
        let text = state_line(&self.container, status_of(pod, &self.container)?);
        if text == *last {
            return None;
        }
        last.clone_from(&text);
        Some(Line { time: self.env.now(), text })
    }
}
