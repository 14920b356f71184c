//! `konverge logs`: the log of the deployed operator, of all its Pods. In: the list that `konverge deploy` left in the cluster. Out: lines, each with its
//! Pod if there are several.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use http_body_util::BodyExt;
use konverge::kube::client::Body;
use tokio::task::JoinSet;

use crate::deploy::{DeployError, Inventory, is_rolled_out, pods};
use crate::description::{ProjectArgs, here, text};
use crate::remote_cluster::{ClusterArgs, RemoteCluster, block_on};

/// How long a server may take until it begins to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The longest line that is waited for; a longer one is cut in pieces.
const LONGEST_LINE: usize = 1 << 20;

/// Arguments of `konverge logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    project: ProjectArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Go on with what the operator says from now on
    #[arg(short, long)]
    follow: bool,
    /// The log of the container before the last restart
    #[arg(short, long)]
    previous: bool,
    /// How many of the newest lines of each Pod; all of them if this is not given
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
}

/// `konverge logs`
pub(crate) fn logs(args: &LogsArgs) -> ExitCode {
    block_on(async {
        let (_, _, target) = here(&args.project)?;
        let cluster = RemoteCluster::connect(&args.cluster).await?;
        let inventory = Inventory::read(&cluster, &target).await?;
        let mut found = Vec::new();
        for object in inventory.objects().iter().filter(|object| is_rolled_out(object)) {
            if let Some(deployment) = cluster.get(&cluster.path(object).await?).await? {
                found.extend(pods(&cluster, &deployment).await?);
            }
        }
        if inventory.is_empty() {
            return Err(DeployError::NotDeployed { name: target.name, namespace: target.namespace });
        }
        if found.is_empty() {
            return Err(DeployError::NoPods { name: target.name, namespace: target.namespace });
        }
        let several = found.len() > 1;
        let mut streams = JoinSet::new();
        for pod in found {
            let (name, namespace) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["namespace"]));
            let tail = args.tail.map_or_else(String::new, |lines| format!("&tailLines={lines}"));
            let path = format!(
                "/api/v1/namespaces/{namespace}/pods/{name}/log?follow={}&previous={}{tail}",
                args.follow, args.previous
            );
            let prefix = if several { format!("{name} │ ") } else { String::new() };
            let client = cluster.client().clone();
            streams.spawn(async move { print(&client, &path, &prefix).await.map_err(|why| (name, why)) });
        }
        let mut failed = None;
        while let Some(ended) = streams.join_next().await {
            match ended {
                // Nobody reads any more, also not what the other Pods say.
                Ok(Ok(Printed::NobodyReads)) => return Ok(failed.unwrap_or(ExitCode::SUCCESS)),
                Ok(Err((pod, why))) => {
                    eprintln!("{pod}: {why}");
                    failed = Some(ExitCode::FAILURE);
                }
                _ => {}
            }
        }
        Ok(failed.unwrap_or(ExitCode::SUCCESS))
    })
}

/// How printing a log ended.
enum Printed {
    All,
    /// Standard output is closed, as by `head -1`.
    NobodyReads,
}

/// Prints an answer line by line as it comes.
async fn print(client: &konverge::kube::Client, path: &str, prefix: &str) -> Result<Printed, String> {
    let request = http::Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(ANSWER_WITHIN, client.send(request)).await;
    let answer = answer.map_err(|_| "the server does not answer".to_owned())?.map_err(|error| error.to_string())?;
    let is_log = answer.status().is_success();
    let mut body = answer.into_body();
    let (mut line, mut refusal) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the log was cut off: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        if !is_log {
            refusal.extend_from_slice(&data);
            continue;
        }
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() > LONGEST_LINE {
                if !print_line(prefix, &line)? {
                    return Ok(Printed::NobodyReads);
                }
                line.clear();
            }
        }
    }
    if !line.is_empty() && !print_line(prefix, &line)? {
        return Ok(Printed::NobodyReads);
    }
    match is_log {
        true => Ok(Printed::All),
        false => {
            let status: serde_json::Value = serde_json::from_slice(&refusal).unwrap_or_default();
            Err(status["message"].as_str().unwrap_or("the server refuses").to_owned())
        }
    }
}

/// Prints a line. False if nobody reads it.
fn print_line(prefix: &str, line: &[u8]) -> Result<bool, String> {
    let mut stdout = std::io::stdout().lock();
    let printed = writeln!(stdout, "{prefix}{}", String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']));
    match printed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("the log cannot be printed: {error}")),
    }
}
