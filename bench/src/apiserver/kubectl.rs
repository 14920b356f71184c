//! What `kubectl` takes: an apply of many objects, the same again, and an explanation. Out: the time from its start to its end, and
//! the CPU of the server. Most of the time is kubectl's own.

use std::process::Command;

use crate::child::{Server, ServerProgram, Storage, Transport};
use crate::invalid_run::{InvalidRun, expect};
use crate::meter::Meter;
use crate::report::{Figure, Figures};

const OBJECTS: usize = 500;

pub(super) async fn measure(program: &ServerProgram) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        return Err(InvalidRun::new("kubectl is not on the path"));
    }
    let server = program.start(Storage::Memory, Transport::Plain).await?;
    let file = tempfile::NamedTempFile::new_in(&program.disk)?;
    let objects: String = (0..OBJECTS)
        .map(|number| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c{number}\n  labels: {{app: bench}}\ndata:\n  \
                 key: value of {number}\n---\n"
            )
        })
        .collect();
    std::fs::write(file.path(), objects)?;
    let file = file.path().to_string_lossy().into_owned();
    let apply = ["apply", "-f", &file];
    let server_side = ["apply", "--server-side", "--force-conflicts", "-f", &file];
    for (what, arguments, lines) in [
        ("apply of 500 ConfigMaps", &apply[..], Some(OBJECTS)),
        ("the same apply again", &apply, Some(OBJECTS)),
        ("a server-side apply of them", &server_side, Some(OBJECTS)),
        ("explain of pods, the first", &["explain", "pods", "--recursive"], None),
        ("explain of pods, again", &["explain", "pods.spec.containers"], None),
        // A heading, and the objects; nobody publishes a CA here, because no controllers run.
        ("get of 500 ConfigMaps", &["get", "configmaps"], Some(OBJECTS + 1)),
    ] {
        let meter = Meter::start(server.process())?;
        let printed = kubectl(&server, arguments)?;
        let spent = meter.stop()?;
        figures.disturbed(&spent);
        if let Some(lines) = lines {
            expect(what, printed.lines().count(), lines)?;
        }
        let note = format!("server {:.0} ms of CPU", spent.server.as_secs_f64() * 1e3);
        figures.add(Figure::cost(format!("kubectl: {what}"), spent.wall.as_secs_f64() * 1e3, "ms").with_note(note));
    }
    Ok(figures)
}

fn kubectl(server: &Server, arguments: &[&str]) -> Result<String, InvalidRun> {
    let output = Command::new("kubectl").arg("--kubeconfig").arg(&server.kubeconfig).args(arguments).output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).chars().take(300).collect::<String>();
        return Err(InvalidRun::new(format!("kubectl {}: {text}", arguments.join(" "))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
