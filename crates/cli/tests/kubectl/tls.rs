//! The same over TLS, where kubectl speaks HTTP/2: requests and watches share one connection.

use crate::cluster::Cluster;
use crate::fixtures::{WIDGETS, widget};

#[test]
fn encrypted() {
    let Some(cluster) = Cluster::start_with(&["--tls"]) else { return };
    cluster.create(WIDGETS);
    let mut watch = cluster.kubectl("get wd -w --output-watch-events --no-headers").follow();
    cluster.create(&widget("w", "size: small"));
    watch.next("ADDED w small 1 *s");
    cluster
        .kubectl("apply --server-side -f -")
        .input(&widget("x", "size: large"))
        .prints("widget.example.com/x serverside-applied");
    watch.next("ADDED x large 1 *s");
    cluster.kubectl("delete wd w").prints("widget.example.com \"w\" deleted …");
    watch.next("DELETED w small 1 *s");
}
