//! The log of a simulated container. In: a pod and log options. Out: the lines that annotations prescribe, each at its time after
//! the start of the container; without them, lines that say that the pod is simulated and how its container is. With `follow`, it
//! goes on until the container ends.

mod follow;
mod lines;

use jiff::{SignedDuration, Timestamp};

use konverge_core::{FieldError, FieldPath, Status};

use crate::body::Body;
use crate::request::Query;
use crate::simulation::Simulation;

use super::connect::PodRequest;
use super::container;
use follow::Following;
use lines::{Line, Run};

/// Log options. What is left of `limit_bytes` goes down while lines are written.
#[derive(Clone, Debug)]
struct LogOptions {
    container: String,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
}

impl LogOptions {
    fn parse(query: &Query, pod: &str, now: Timestamp) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let mut number = |name: &str, least: i64, why: &str| {
            let given = query.number(name)?;
            if let Some(given) = given.filter(|given| *given < least) {
                errors.push(FieldError::invalid(FieldPath::new(name), given.into(), why));
            }
            Ok::<_, Status>(given)
        };
        let tail_lines = number("tailLines", 0, "must be greater than or equal to 0")?;
        let limit_bytes = number("limitBytes", 1, "must be greater than 0")?;
        let since_seconds = number("sinceSeconds", 1, "must be greater than 0")?;
        let since_time = query.get("sinceTime").map(|text| {
            let why =
                |_| Status::bad_request(format!("unable to parse sinceTime {text:?}: it must be a time of RFC 3339"));
            text.parse::<Timestamp>().map_err(why)
        });
        let since_time = since_time.transpose()?;
        if since_seconds.is_some() && since_time.is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden(FieldPath::root(), why));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("", "PodLogOptions", pod, &errors));
        }
        let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        let count = |number: i64| usize::try_from(number).unwrap_or_default();
        Ok(Self {
            container: query.get("container").unwrap_or_default().to_owned(),
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            since: since_time.or(since_seconds.map(ago)),
            tail_lines: tail_lines.map(count),
            limit_bytes: limit_bytes.map(count),
        })
    }

    /// The text of some lines, as much of it as is wanted and was not written yet.
    fn text(&mut self, lines: &[Line]) -> String {
        // As in a kubelet: the tail is taken first, and of it what is new enough.
        let skipped = self.tail_lines.take().map_or(0, |wanted| lines.len().saturating_sub(wanted));
        let new = lines.iter().skip(skipped).filter(|line| self.since.is_none_or(|since| line.time >= since));
        let mut text: String = new
            .map(|line| match self.timestamps {
                true => format!("{} {}\n", line.time.strftime("%Y-%m-%dT%H:%M:%S%.9fZ"), line.text),
                false => format!("{}\n", line.text),
            })
            .collect();
        if let Some(left) = &mut self.limit_bytes {
            let cut = (0..=(*left).min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            // A letter that has no room is the end, too.
            *left = if cut == text.len() { *left - cut } else { 0 };
            text.truncate(cut);
        }
        text
    }

    /// Whether nothing more may be written.
    fn is_full(&self) -> bool {
        self.limit_bytes == Some(0)
    }
}

/// The log of a container; nothing as long as the pod has no node.
pub(crate) async fn log(at: &PodRequest<'_>) -> Result<Option<Body>, Status> {
    let now = at.server.env.now();
    let mut options = LogOptions::parse(&at.request.query, at.name, now)?;
    let found = at.read(at.name).await?;
    let pod = &found.object;
    let container = container::container(pod, &options.container)?["name"].as_str().unwrap_or_default();
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return Ok(None);
    }
    let run = Run::of(pod, container, options.previous)?;
    let prescribed = Simulation::of(pod).log(container);
    let is_prescribed = prescribed.is_some();
    let (printed, coming): (Vec<Line>, Vec<Line>) = match prescribed {
        Some(log) => run.prescribed(log).into_iter().partition(|line| line.time <= run.end().unwrap_or(now)),
        None => (lines::described(pod, container, options.previous, now), Vec::new()),
    };
    let text = options.text(&printed);
    if !options.follow || run.end().is_some() || options.is_full() {
        return Ok(Some(Body::full(text)));
    }
    let last_state = (!is_prescribed).then(|| printed.last().map(|line| line.text.clone()).unwrap_or_default());
    let watch = at.server.store.watch(&found.key, found.seen).map_err(Status::internal)?;
    let mut closing = at.server.closing();
    let closing = async move { drop(closing.wait_for(|closing| *closing).await) };
    let following = Following {
        resource: at.resource.clone(),
        env: at.server.env.clone(),
        options,
        key: found.key.clone(),
        container: container.to_owned(),
        run,
        coming: coming.into(),
        last_state,
    };
    Ok(Some(Body::stream(following.text_and_news(text, watch, closing))))
}
