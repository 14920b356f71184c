#!/usr/bin/env python3
"""Three processes of one operator, one API server, and faults: does anybody write without leading?

    prove.py KONVERGE OPERATOR [--mode lease|shards|groups] [--seconds 40] [--seed 1] [--times 3,2,0.5]

KONVERGE is the program `konverge`, OPERATOR the example `webapp` under that name; with groups, `webapp-groups` of the folder beside this. Every process of the operator has a service account of its own and
reaches the server through a link that can be cut, also in one direction only; what was sent before the cut arrives when it heals. Faults
are chosen by the seed: kill -9, SIGSTOP for longer than a term, SIGTERM, cuts. Meanwhile WebApps are created and changed.

The oracle is the audit log of the server. Resource versions put all writes into one order, so for each write of the operator it is known
which process held the Lease (or which Leases of shards) at the moment of the commit:

    safety    every write was made by a process that held the Lease at that moment; with shards, all writes about one object were made by
              holders of one and the same shard; with groups, by the holder of the Lease of the group that writes such things
    liveness  when the faults are over, every WebApp has its Deployment, and one process leads (or all shards are held); with groups, it
              has what each group makes of it, and different processes led different groups at the same time

It also tells how long it took from each kill to the first write of another process. Nothing here is asserted about time.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

REPLICAS = 3
NAMESPACE = "default"
LEASE = "webapp-lock"
SHARD_LEASE = "webapp-shard-"
SHARDS = 6
# Which Lease the writer of what has to hold; events are told apart by their reason.
GROUP_LEASES = {
    "webapps": LEASE, "deployments": LEASE, "services": LEASE,
    "configmaps": f"{LEASE}-pages", "Published": f"{LEASE}-pages",
    "poddisruptionbudgets": f"{LEASE}-budgets",
}
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: RequestResponse
  verbs: [create, update, patch]
  resources:
  - {group: apps}
  - {group: "", resources: [services, configmaps]}
  - {group: example.com}
  - {group: policy}
  - {group: events.k8s.io}
  - {group: coordination.k8s.io}
- level: None
"""


def say(text):
    print(f"{time.monotonic() - BEGAN:7.2f} {text}", flush=True)


class Server:
    """`konverge apiserver` with an audit log."""

    def __init__(self, program, work):
        (work / "policy.yaml").write_text(POLICY)
        self.audit = work / "audit.log"
        flags = ["--audit-policy-file", "policy.yaml", "--audit-log-path", "audit.log", "--audit-log-mode", "blocking"]
        self.process = subprocess.Popen(
            [program, "apiserver", "--memory", "--port", "0", *flags],
            cwd=work, stdout=subprocess.PIPE, stderr=open(work / "server.log", "w"), text=True,
        )
        line = self.process.stdout.readline()
        if " ready at http://" not in line:
            sys.exit(f"konverge apiserver did not start: {line}{(work / 'server.log').read_text()}")
        self.port = int(line.split("http://127.0.0.1:")[1].split()[0])
        config = (work / ".konverge" / "kubeconfig").read_text()
        self.token = next(line.split("token:")[1].strip().strip('"') for line in config.splitlines() if "token:" in line)

    def call(self, method, path, body=None, content_type="application/json"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", content_type)
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=30) as answer:
            return json.load(answer)

    def try_call(self, *arguments, **named):
        try:
            return self.call(*arguments, **named)
        except urllib.error.HTTPError as error:
            if error.code in (404, 409):
                return None
            raise RuntimeError(f"{arguments[:2]}: {error.read().decode()}") from error


class Link:
    """A TCP connection to the server that can be cut, in both directions or in one."""

    def __init__(self, target):
        self.target, self.up, self.down = target, asyncio.Event(), asyncio.Event()
        self.up.set()
        self.down.set()
        self.connections = set()

    async def listen(self):
        self.listener = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self.connections.add(writer)
        pumps = [pump(reader, far_writer, self.up), pump(far_reader, writer, self.down)]
        try:
            await asyncio.gather(*pumps, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the end of the program
        self.connections.discard(writer)

    def cut(self, directions):
        if "up" in directions:
            self.up.clear()
        if "down" in directions:
            self.down.clear()

    def heal(self, drop):
        if drop:
            for connection in list(self.connections):
                connection.transport.abort()
        self.up.set()
        self.down.set()


async def pump(reader, writer, is_open):
    try:
        while data := await reader.read(65536):
            await is_open.wait()
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


class Replica:
    """One instance of the operator; a process with its own account for each start."""

    def __init__(self, number, options, server, link, work):
        self.number, self.options, self.server, self.link, self.work = number, options, server, link, work
        self.life, self.process, self.account = 0, None, None

    def start(self):
        self.life += 1
        self.account = f"replica-{self.number}-{self.life}"
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        self.server.call("POST", accounts, {"metadata": {"name": self.account}})
        binding = {
            "metadata": {"name": self.account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": self.account, "namespace": NAMESPACE}],
        }
        self.server.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.server.call("POST", f"{accounts}/{self.account}/token", review)["status"]["token"]
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.link.port}"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
        }
        path = self.work / f"{self.account}.json"
        path.write_text(json.dumps(config))
        environment = {**os.environ, "KUBECONFIG": str(path), "KONVERGE_METRICS_BIND_ADDRESS": "127.0.0.1:0",
                       "KONVERGE_HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0"}
        duration, deadline, period = self.options.times.split(",")
        flags = {
            "lease": ["--leader-elect"],
            "shards": ["--shards", str(SHARDS)],
            "groups": ["--leader-elect"],
        }[self.options.mode]
        times = [f"--leader-elect-lease-duration={duration}s", f"--leader-elect-renew-deadline={deadline}s",
                 f"--leader-elect-retry-period={period}s", f"--leader-election-namespace={NAMESPACE}"]
        log = open(self.work / f"{self.account}.log", "w")
        self.process = subprocess.Popen(
            [self.options.operator, *flags, *times], env=environment, stdout=log, stderr=log, cwd=self.work)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def send(self, what):
        if self.is_running():
            self.process.send_signal(what)

    def end(self, what=signal.SIGKILL):
        self.send(signal.SIGCONT)
        self.send(what)
        if self.process is not None:
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                sys.exit(f"{self.account} did not end after {what.name}")


class History:
    """What the audit log tells, in the order of the commits."""

    def __init__(self, path):
        first = {}
        # The last line may be half written.
        for line in path.read_text().split("\n")[:-1]:
            event = json.loads(line)
            answered = event.get("responseObject") or {}
            version = (answered.get("metadata") or {}).get("resourceVersion")
            if event.get("responseStatus", {}).get("code", 500) >= 300 or not version or "dryRun" in event["requestURI"]:
                continue
            # A write that changes nothing is answered with the version that another one made.
            known = first.get(int(version))
            if known is None or event["requestReceivedTimestamp"] < known["requestReceivedTimestamp"]:
                first[int(version)] = event
        self.events = [first[version] for version in sorted(first)]

    def writes(self):
        """(account, event, Leases held at that moment by name) for each write; Leases are told by the account of their holder."""
        held, identities = {}, {}
        for event in self.events:
            account = event["user"]["username"].removeprefix(f"system:serviceaccount:{NAMESPACE}:")
            reference = event["objectRef"]
            if reference["resource"] == "leases":
                holder = event["responseObject"]["spec"].get("holderIdentity")
                if holder:
                    identities.setdefault(holder, account)
                held[reference.get("name") or event["responseObject"]["metadata"]["name"]] = identities.get(holder)
            elif account.startswith("replica-"):
                yield account, event, dict(held)


def owner(event):
    """The WebApp that a write is about: its own name, or that of the child, which is the same."""
    return event["objectRef"].get("name") or event["responseObject"]["metadata"]["name"]


def check_lease(history):
    count = 0
    for account, event, held in history.writes():
        count += 1
        if held.get(LEASE) != account:
            fail(f"{account} wrote while {held.get(LEASE)} held the Lease", event)
    return count


def check_shards(history):
    count, candidates = 0, {}
    for account, event, held in history.writes():
        count += 1
        mine = {name for name, holder in held.items() if name.startswith(SHARD_LEASE) and holder == account}
        name = owner(event)
        candidates[name] = candidates.get(name, mine) & mine
        if not candidates[name]:
            fail(f"{account} wrote about {name} without its shard; it held {sorted(mine)}", event)
    return count


def check_groups(history):
    """Each write against the Lease of its group. Tells for each group how many writes were made while others led other groups."""
    leases = sorted(set(GROUP_LEASES.values()))
    writes, apart = dict.fromkeys(leases, 0), dict.fromkeys(leases, 0)
    for account, event, held in history.writes():
        what = event["objectRef"]["resource"]
        what = event["responseObject"]["reason"] if what == "events" else what
        if what == "LeaderElection":
            continue  # about the Lease itself: who led tells, also when its term is over
        if what not in GROUP_LEASES:
            fail(f"{account} wrote {what}, which belongs to no group", event)
        lease = GROUP_LEASES[what]
        if held.get(lease) != account:
            fail(f"{account} wrote {what} while {held.get(lease)} held {lease}", event)
        writes[lease] += 1
        apart[lease] += any(held.get(other) not in (account, None) for other in leases if other != lease)
    for lease in leases:
        say(f"{lease}: {writes[lease]} writes, {apart[lease]} of them while another process led another group")
        if writes[lease] < 50 or apart[lease] < 10:
            raise SystemExit(f"too few writes of {lease}: this proves nothing")
    return sum(writes.values())


def fail(why, event):
    print(json.dumps(event, indent=1)[:3000], file=sys.stderr)
    raise SystemExit(f"VIOLATION: {why} (run again with --seed {SEED})")


async def load(server, names, stop):
    """Creates and changes WebApps, so that there is always something to write."""
    path = f"/apis/example.com/v1/namespaces/{NAMESPACE}/webapps"
    count = 0
    while not stop.is_set():
        count += 1
        name = f"app-{count % 40}"
        spec = {"image": f"nginx:{count}", "replicas": count}
        body = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": name}, "spec": spec}
        if name not in names:
            await asyncio.to_thread(server.try_call, "POST", path, body)
            names[name] = count
        else:
            names[name] = count
            await asyncio.to_thread(
                server.try_call, "PATCH", f"{path}/{name}", {"spec": spec}, content_type="application/merge-patch+json")
        await asyncio.sleep(0.03)


async def fault(dice, replicas, server, options, kills):
    """One fault, and its end."""
    lease_seconds = float(options.times.split(",")[0])
    holders = await asyncio.to_thread(leaders, server, options)
    # Mostly it is a leader that something happens to.
    candidates = [replica for replica in replicas if replica.account in holders] if dice.random() < 0.8 else []
    replica = dice.choice(candidates or replicas)
    what = dice.choice(["kill", "kill", "pause", "terminate", "cut", "cut up", "cut down"])
    say(f"{what}: {replica.account}{' (leads)' if replica.account in holders else ''}")
    if what in ("kill", "terminate"):
        if replica.account in holders:
            kills.append((time.time(), replica.account, what))
        await asyncio.to_thread(replica.end, signal.SIGKILL if what == "kill" else signal.SIGTERM)
        await asyncio.sleep(dice.uniform(0, 1.5 * lease_seconds))
        await asyncio.to_thread(replica.start)
    elif what == "pause":
        replica.send(signal.SIGSTOP)
        await asyncio.sleep(dice.uniform(0.5, 2.5) * lease_seconds)
        replica.send(signal.SIGCONT)
    else:
        replica.link.cut({"cut": ["up", "down"], "cut up": ["up"], "cut down": ["down"]}[what])
        await asyncio.sleep(dice.uniform(0.3, 2) * lease_seconds)
        replica.link.heal(drop=dice.random() < 0.3)
    await asyncio.sleep(dice.uniform(0, lease_seconds))


def leaders(server, options):
    """The accounts that hold a Lease; the audit log knows which process an identity is."""
    leases = server.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
    wanted = [lease for lease in leases if is_election(lease["metadata"]["name"], options)]
    holding = {lease["spec"].get("holderIdentity") for lease in wanted}
    accounts = set()
    for event in History(server.audit).events:
        spec = event["responseObject"].get("spec") or {}
        if event["objectRef"]["resource"] == "leases" and spec.get("holderIdentity") in holding:
            accounts.add(event["user"]["username"].rsplit(":", 1)[1])
    return accounts


def is_election(name, options):
    return name.startswith(SHARD_LEASE) if options.mode == "shards" else name in GROUP_LEASES.values()


async def heal(server, replicas, names, options):
    """Everything works again. Waits until all WebApps have what they ask for."""
    for replica in replicas:
        replica.link.heal(drop=False)
        replica.send(signal.SIGCONT)
        if not replica.is_running():
            await asyncio.to_thread(replica.start)
    # What is made of a WebApp, and where its image or the number of its replicas is found in that.
    children = {"apis/apps/v1 deployments": lambda item: item["spec"]["template"]["spec"]["containers"][0]["image"]}
    if options.mode == "groups":
        children["api/v1 configmaps"] = lambda item: item["metadata"].get("annotations", {}).get("published")
        children["apis/policy/v1 poddisruptionbudgets"] = lambda item: f"nginx:{item['spec']['minAvailable']}"
    patience, began = 60, time.monotonic()
    while True:
        missing = set()
        for kind, image in children.items():
            path = f"/{kind.replace(' ', f'/namespaces/{NAMESPACE}/')}"
            listed = (await asyncio.to_thread(server.call, "GET", path))["items"]
            images = {item["metadata"]["name"]: image(item) for item in listed if item["metadata"]["name"] in names}
            missing |= {f"{kind} {name}" for name, count in names.items() if images.get(name) != f"nginx:{count}"}
        if not missing:
            break
        if time.monotonic() - began > patience:
            raise SystemExit(f"NOT CONVERGED after {patience} s: {sorted(missing)} (run again with --seed {SEED})")
        await asyncio.sleep(0.2)
    say(f"converged {time.monotonic() - began:.1f} s after the last fault")


def takeovers(history, kills):
    """Seconds from each kill of a leader to the first write of another process."""
    times = {"kill": [], "terminate": []}
    writes = [(stamp(event), account) for account, event, _ in history.writes()]
    for at, killed, what in kills:
        later = [when - at for when, account in writes if when > at and account != killed]
        if later:
            times[what].append(min(later))
    for what, name in (("kill", "kill -9"), ("terminate", "SIGTERM")):
        found = sorted(times[what])
        if found:
            say(f"{name} to the first write of another process: p50 {found[len(found) // 2]:.2f} s, "
                f"longest {found[-1]:.2f} s, of {len(found)}")


def stamp(event):
    text = event["stageTimestamp"].rstrip("Z")
    whole, _, fraction = text.partition(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) - time.timezone + float(f"0.{fraction or 0}")


async def prove(options, work):
    dice = random.Random(options.seed)
    server = Server(options.konverge, work)
    replicas, stop = [], asyncio.Event()
    try:
        definitions = subprocess.run([options.operator, "--print-crds"], capture_output=True, check=True).stdout
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definitions, method="POST")
        request.add_header("Authorization", f"Bearer {server.token}")
        request.add_header("Content-Type", "application/yaml")
        urllib.request.urlopen(request, timeout=30).close()
        for number in range(REPLICAS):
            link = Link(server.port)
            await link.listen()
            replica = Replica(number, options, server, link, work)
            await asyncio.to_thread(replica.start)
            replicas.append(replica)
        names, kills = {}, []
        loading = asyncio.create_task(load(server, names, stop))
        await asyncio.sleep(2)
        end = time.monotonic() + options.seconds
        faults = 0
        while time.monotonic() < end:
            await fault(dice, replicas, server, options, kills)
            faults += 1
        stop.set()
        await loading
        await heal(server, replicas, names, options)
        history = History(server.audit)
        count = {"lease": check_lease, "shards": check_shards, "groups": check_groups}[options.mode](history)
        if count < 50:
            raise SystemExit(f"only {count} writes: this proves nothing")
        if options.mode == "lease":
            takeovers(history, kills)
        say(f"ok: {count} writes under {faults} faults, seed {options.seed}; each by a holder of its Lease")
    finally:
        stop.set()
        for replica in replicas:
            replica.end()
        server.process.kill()
        server.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("konverge")
    parser.add_argument("operator")
    parser.add_argument("--mode", choices=["lease", "shards", "groups"], default="lease")
    parser.add_argument("--seconds", type=float, default=40, help="how long faults happen")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--times", default="3,2,0.5", help="lease duration, renew deadline, retry period, in seconds")
    parser.add_argument("--keep", action="store_true", help="keep the logs, and say where they are")
    options = parser.parse_args()
    options.konverge, options.operator = map(os.path.abspath, (options.konverge, options.operator))
    global SEED
    SEED = options.seed
    directory = tempfile.mkdtemp(prefix="konverge-leadership-")
    try:
        asyncio.run(prove(options, Path(directory)))
    finally:
        if options.keep:
            say(f"logs: {directory}")
        else:
            shutil.rmtree(directory)


BEGAN, SEED = time.monotonic(), 0
if __name__ == "__main__":
    main()
