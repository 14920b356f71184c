//! `konverge permissions`: what an operator may do, beside what it did. In: a running server, found by its kubeconfig. Out: a report,
//! or the least roles as YAML. The exit code is 1 with `--check` if the operator has more rights than it used, or lacks some.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use konverge::Settings;
use konverge::kube::Client;
use konverge_apiserver::PermissionReport;
use konverge_core::ErrorChain;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::data_dir::DataDir;

/// The page that has the reports.
pub(crate) const PAGE: &str = "/permissions";

/// What the name of a service account as a user begins with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Arguments of `konverge permissions`.
#[derive(Debug, clap::Args)]
pub(crate) struct PermissionsArgs {
    /// Whose: NAME or NAMESPACE/NAME of a service account, or the name of a user [default: the only service account that made
    /// requests]
    #[arg(value_name = "ACCOUNT")]
    account: Option<String>,
    /// Fail, with exit code 1, if rights were never used or are lacking
    #[arg(long)]
    check: bool,
    /// What to print: `text` for people, `json`, or `roles`: the least roles that would have been enough, as YAML
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text)]
    output: ReportFormat,
    /// How to reach the server [default: $KUBECONFIG, or .konverge/kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    Text,
    Json,
    Roles,
}

#[derive(Deserialize)]
struct Seen {
    users: Vec<String>,
}

/// `konverge permissions`
pub(crate) fn permissions(args: &PermissionsArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(report(args)),
        Err(error) => Err(error.to_string()),
    };
    let report = match report {
        Ok(report) => report,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    match args.output {
        ReportFormat::Text => print!("{report}"),
        ReportFormat::Json => println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default()),
        ReportFormat::Roles => {
            for role in &report.least {
                print!("---\n{}", serde_saphyr::to_string(role).unwrap_or_default());
            }
        }
    }
    if args.check && !report.is_least() {
        eprintln!(
            "{}: never used: {}, lacking: {}; -o roles prints the least roles",
            report.user,
            report.unused.len(),
            report.lacking.len()
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn report(args: &PermissionsArgs) -> Result<PermissionReport, String> {
    let own = DataDir::new(crate::args::DATA_DIR.as_ref()).kubeconfig();
    let unsaid = args.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none_or(|path| path.is_empty());
    let kubeconfig = args.kubeconfig.clone().or_else(|| (unsaid && own.exists()).then_some(own));
    let settings = Settings { kubeconfig: kubeconfig.into_iter().collect(), ..Settings::default() };
    let config = settings.cluster().await.map_err(|error| ErrorChain(&error).to_string())?;
    let client = Client::try_from(config).map_err(|error| ErrorChain(&error).to_string())?;
    let user = match &args.account {
        Some(account) => user_name(account),
        None => only_account(ask::<Seen>(&client, PAGE).await?.users)?,
    };
    let path = format!("{PAGE}?user={}", utf8_percent_encode(&user, NON_ALPHANUMERIC));
    let report: PermissionReport = ask(&client, &path).await?;
    let sections = [&report.used, &report.unused, &report.kept, &report.lacking];
    if sections.iter().all(|rules| rules.is_empty()) {
        return Err(format!(
            "{user} has no rights of its own and asked for none since the server started; `kubectl get \
             clusterrolebindings,rolebindings -A -o wide` shows who has some"
        ));
    }
    Ok(report)
}

/// Reads a page of the server.
async fn ask<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    client.request(request).await.map_err(|error| match error {
        konverge::kube::Error::Api(status) if status.code == 404 => {
            "this server has no such page: only servers of konverge know which rights were used".to_owned()
        }
        _ => format!("{:#}", konverge::Error::from(error)),
    })
}

/// The name of the user that an argument means.
fn user_name(account: &str) -> String {
    match (account.contains(':'), account.split_once('/')) {
        (true, _) => account.to_owned(),
        (false, Some((namespace, name))) => format!("{SERVICE_ACCOUNT}{namespace}:{name}"),
        (false, None) => format!("{SERVICE_ACCOUNT}default:{account}"),
    }
}

/// The service account, if only one made requests. Those of the control plane are in `kube-system`.
fn only_account(users: Vec<String>) -> Result<String, String> {
    let is_operator =
        |user: &String| user.strip_prefix(SERVICE_ACCOUNT).is_some_and(|rest| !rest.starts_with("kube-system:"));
    let mut accounts: Vec<String> = users.into_iter().filter(is_operator).collect();
    match accounts.len() {
        0 => Err(
            "no service account has made a request since the server started; run the operator as one, or name a user"
                .to_owned(),
        ),
        1 => Ok(accounts.remove(0)),
        _ => {
            let known: Vec<&str> = accounts.iter().map(|user| user.trim_start_matches(SERVICE_ACCOUNT)).collect();
            Err(format!("which one? There are {}", known.join(", ").replace(':', "/")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_users() {
        for (account, expect) in [
            ("web", "system:serviceaccount:default:web"),
            ("shop/web", "system:serviceaccount:shop:web"),
            ("system:serviceaccount:shop:web", "system:serviceaccount:shop:web"),
            ("system:kube-scheduler", "system:kube-scheduler"),
        ] {
            assert_eq!(user_name(account), expect);
        }
    }

    #[test]
    fn who_is_meant_by_nobody() {
        let check = |users: &[&str], expect: Result<&str, &str>| {
            let found = only_account(users.iter().map(|user| (*user).to_owned()).collect());
            match (found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect),
                (Err(found), Err(expect)) => assert!(found.contains(expect), "{found}"),
                (found, expect) => panic!("{found:?} instead of {expect:?}"),
            }
        };
        let (web, db) = ("system:serviceaccount:default:web", "system:serviceaccount:shop:db");
        check(&["system:anonymous", "system:serviceaccount:kube-system:job-controller", web], Ok(web));
        check(&["alice"], Err("no service account has made a request"));
        check(&[web, db], Err("which one? There are default/web, shop/db"));
    }
}
