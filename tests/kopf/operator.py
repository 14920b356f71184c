"""An operator as people write it with kopf: a ConfigMap for each Note, its status, and a record that deletion removes."""

import asyncio
import base64
import json
import os
import ssl
import urllib.request

import kopf
import yaml


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    # Events of the framework itself would be posted for every handler.
    settings.posting.level = 40
    settings.persistence.finalizer = "notes.demo.example.com/kopf"


@kopf.on.create("demo.example.com", "v1", "notes")
async def created(spec, name, namespace, body, patch, **_):
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"text": spec["text"]},
    }
    kopf.adopt(child, owner=body)
    await send("POST", f"/api/v1/namespaces/{namespace}/configmaps", child)
    kopf.event(body, type="Normal", reason="Written", message="made a config map")
    patch.status["written"] = spec["text"]
    return {"child": name}


@kopf.on.update("demo.example.com", "v1", "notes", field="spec.text")
async def changed(old, new, name, namespace, patch, **_):
    body = {"data": {"text": new, "before": old}}
    await send("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/{name}", body)
    patch.status["written"] = new


@kopf.on.delete("demo.example.com", "v1", "notes")
async def deleted(name, namespace, **_):
    record = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-was-here", "namespace": namespace}}
    await send("POST", f"/api/v1/namespaces/{namespace}/configmaps", record)


@kopf.on.event("", "v1", "configmaps", labels={"watched": "yes"})
async def seen(event, name, namespace, body, **_):
    """Marks what it sees once, to show that watches of built-in kinds come through."""
    if event["type"] != "DELETED" and "seen" not in (body.get("data") or {}):
        await send("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/{name}", {"data": {"seen": "yes"}})


async def send(method, path, body):
    await asyncio.to_thread(request, method, path, body)


def request(method, path, body):
    """One request, by the same kubeconfig as kopf."""
    with open(os.environ["KUBECONFIG"], encoding="utf-8") as file:
        config = yaml.safe_load(file)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Content-Type": kind, "Authorization": f"Bearer {user['token']}"}
    message = urllib.request.Request(cluster["server"] + path, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(message, context=context) as answer:
        answer.read()
