//! More requests than the server works on at the same time, what the page of metrics says about requests, and many watches.

use konverge_apiserver::{InFlightLimits, Storage, UserInfo};

use crate::cluster::{CONFIG_MAPS, Cluster, config_map};

/// A create that waits for the disk keeps its slot, so the next one is refused. Administrators are not.
#[tokio::test(flavor = "current_thread")]
async fn more_writes_than_slots() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::Disk(directory.path().join("data"));
    let in_flight = InFlightLimits { reading: 0, writing: 1 };
    let cluster = Cluster::with(|options| konverge_apiserver::Options { storage, in_flight, ..options }).await;
    let master = UserInfo { groups: vec!["system:masters".into()], ..UserInfo::named("root") };
    let create = |name: &str, user: Option<UserInfo>| {
        let mut request = http::Request::post(CONFIG_MAPS).header("content-type", "application/json");
        if let Some(user) = user {
            request = request.extension(user);
        }
        cluster.send(request.body(http_body_util::Full::from(config_map(name).to_string())).unwrap())
    };
    // Polled in this order, on one thread: the first one waits for its fsync when the others come. On a busy machine the disk may have been
    // faster than this thread; then there was nothing to refuse, and they come again.
    let mut turns = 0;
    let (second, list) = loop {
        turns += 1;
        let name = |place: &str| format!("{place}-{turns}");
        let (first, second, third, list) = tokio::join!(
            biased;
            create(&name("first"), None),
            create(&name("second"), None),
            create(&name("third"), Some(master.clone())),
            cluster.get(CONFIG_MAPS)
        );
        let codes = [first.status(), second.status(), third.status()].map(|code| code.as_u16());
        assert!(matches!(codes, [201, 201 | 429, 201]) && turns < 100, "{codes:?} in turn {turns}");
        if codes[1] == 429 {
            break (second, list);
        }
    };
    list.expect(200);
    assert_eq!(second.headers()["retry-after"], "1");
    assert_eq!(create("late", None).await.status(), 201, "the slot is free again");
    let page = page(&cluster).await;
    let labels = "group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"POST\",version=\"v1\"";
    for (line, value) in [
        (format!("apiserver_request_total{{code=\"201\",component=\"apiserver\",dry_run=\"\",{labels}}}"), 3 * turns),
        (format!("apiserver_request_total{{code=\"429\",component=\"apiserver\",dry_run=\"\",{labels}}}"), 1),
        (format!("apiserver_request_terminations_total{{code=\"429\",component=\"apiserver\",{labels}}}"), 1),
    ] {
        assert!(page.contains(&format!("{line} {value}\n")), "{line} {value} in\n{page}");
    }
}

/// Watches are counted while they run, and what does not exist is not counted at all.
#[tokio::test]
async fn what_is_counted() {
    let cluster = Cluster::new().await;
    let running = |page: &str| {
        let line =
            page.lines().find(|line| line.starts_with("apiserver_longrunning_requests{") && line.contains("WATCH"));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or("none").to_owned()
    };
    let watch = cluster.watch("/api/v1/configmaps?watch=1").await;
    assert_eq!(running(&page(&cluster).await), "1");
    drop(watch);
    assert_eq!(running(&page(&cluster).await), "0");
    for path in ["/api/v1/nonsense", "/apis/no.such.group/v1/things", "/api/v1/namespaces/default/pods/p/nonsense"] {
        cluster.get(path).await;
    }
    let page = page(&cluster).await;
    assert!(!page.contains("nonsense") && !page.contains("no.such.group"), "{page}");
    assert!(page.contains("verb=\"WATCH\",version=\"v1\"} 1\n"), "{page}");
}

/// So many watches collect changes that come fast. Each sees every change, once and in order.
#[tokio::test]
async fn many_watches_see_every_change() {
    let cluster = Cluster::new().await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", cluster.revision());
    let mut watches = Vec::new();
    for _ in 0..60 {
        watches.push(cluster.watch(&path).await);
    }
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    for name in &names {
        cluster.post(CONFIG_MAPS, &config_map(name)).await.expect(201);
    }
    for watch in &mut watches {
        let mut seen = Vec::new();
        for _ in &names {
            seen.push(watch.next().await["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        }
        assert_eq!(seen, names);
    }
}

async fn page(cluster: &Cluster) -> String {
    let answer = cluster.get("/metrics").await;
    assert_eq!((answer.code, answer.header("content-type")), (200, "text/plain; version=0.0.4; charset=utf-8"));
    String::from_utf8_lossy(&answer.body).into_owned()
}
