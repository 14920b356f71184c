//! The file of the audit log. In: lines. It begins a new file when one is full, keeps the old ones under the time at which they
//! were full, as kube-apiserver names them, and removes or compresses old ones beside the writing. A line that a full disk or the end
//! of the process cut short is ended before the next one, so that it makes no other unreadable.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const MEGABYTE: u64 = 1024 * 1024;
const COMPRESSED: &str = ".gz";

/// The time in the name of an old file.
const NAME_TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// What becomes of files that are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Megabytes after which a new file begins; 0: never.
    pub max_size: u64,
    /// Days after which old files are removed; 0: never.
    pub max_age: u64,
    /// How many old files are kept; 0: all.
    pub max_backups: usize,
    /// Whether old files are compressed.
    pub compress: bool,
}

/// A file that begins anew when it is full.
#[derive(Debug)]
pub(crate) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    /// None after an error: the next line opens the file again.
    open: Option<(File, u64)>,
    /// Wakes the thread that removes and compresses old files. There is room for one: it looks at all of them each time.
    cleaner: Option<SyncSender<()>>,
}

impl RotatingFile {
    /// Opens the file, which is made with its folders if it is not there, for its owner alone.
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true);
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(folder)?;
        }
        let mut file = Self { path: path.to_owned(), rotation, open: None, cleaner: None };
        file.open = Some(file.append()?);
        if rotation.cleans() {
            let (cleaner, wakes) = sync_channel(1);
            let (path, rotation) = (path.to_owned(), rotation);
            std::thread::Builder::new().name("audit-files".to_owned()).spawn(move || {
                while wakes.recv().is_ok() {
                    if let Err(error) = clean(&path, rotation, Timestamp::now()) {
                        tracing::warn!(%error, "old files of the audit log cannot be removed or compressed");
                    }
                }
            })?;
            file.cleaner = Some(cleaner);
            file.wake_cleaner();
        }
        Ok(file)
    }

    /// Writes a line, into a new file if this one has no room for it.
    pub(crate) fn write(&mut self, line: &[u8], now: Timestamp) -> io::Result<()> {
        let (length, most) = (line.len() as u64, self.rotation.max_size.saturating_mul(MEGABYTE));
        if most > 0 && length > most {
            let why = format!("write length {length} exceeds maximum file size {most}");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => self.append()?,
        };
        if most > 0 && size + length > most {
            drop(file);
            (file, size) = self.rotate(now)?;
        }
        file.write_all(line)?;
        self.open = Some((file, size + length));
        Ok(())
    }

    fn append(&self) -> io::Result<(File, u64)> {
        let mut file = private().append(true).open(&self.path)?;
        let metadata = file.metadata()?;
        let mut size = metadata.len();
        if metadata.is_file() && is_torn(&self.path) {
            file.write_all(b"\n")?;
            size += 1;
        }
        Ok((file, size))
    }

    /// Puts the full file aside and begins a new one.
    fn rotate(&self, now: Timestamp) -> io::Result<(File, u64)> {
        // Two files can be full within a millisecond, and the first is not to be overwritten.
        let times = (0..1000).map(|later| now + Duration::from_millis(later));
        let free = times.map(|time| backup(&self.path, time)).find(|path| !path.exists() && !compressed(path).exists());
        let aside = free.ok_or_else(|| io::Error::new(io::ErrorKind::AlreadyExists, "there are too many old files"))?;
        fs::rename(&self.path, aside)?;
        let file = private().append(true).open(&self.path)?;
        self.wake_cleaner();
        Ok((file, 0))
    }

    fn wake_cleaner(&self) {
        if let Some(cleaner) = &self.cleaner {
            // If it is full, the thread is going to look at all files anyway.
            let _ = cleaner.try_send(());
        }
    }
}

impl Rotation {
    fn cleans(self) -> bool {
        self.max_size > 0 && (self.max_age > 0 || self.max_backups > 0 || self.compress)
    }
}

/// Whether a file ends within a line. One that nobody may read counts as whole.
fn is_torn(path: &Path) -> bool {
    let mut last = [b'\n'];
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)
    });
    read.is_ok() && last != [b'\n']
}

/// How new files are made: nobody else may read them, as they have secrets if the policy asks for them.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// The name of a file that was full at this time: `audit-2026-01-02T03-04-05.678.log`.
fn backup(path: &Path, time: Timestamp) -> PathBuf {
    let (prefix, extension) = name_parts(path);
    path.with_file_name(format!("{prefix}{}{extension}", time.strftime(NAME_TIME)))
}

fn compressed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(COMPRESSED);
    name.into()
}

/// What comes before and after the time in the names of old files.
fn name_parts(path: &Path) -> (String, String) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (stem, extension) = name.rfind('.').map_or((name.as_str(), ""), |dot| name.split_at(dot));
    (format!("{stem}-"), extension.to_owned())
}

/// Removes and compresses old files.
fn clean(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    let plan = Plan::of(&names, &name_parts(path), rotation, now);
    let mut done = Ok(());
    for name in plan.remove {
        done = done.and(fs::remove_file(folder.join(name)));
    }
    for name in plan.compress {
        done = done.and(compress(&folder.join(name)));
    }
    done
}

/// What is to be done with old files, newest first.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan<'a> {
    remove: Vec<&'a str>,
    compress: Vec<&'a str>,
}

impl<'a> Plan<'a> {
    fn of(names: &'a [String], (prefix, extension): &(String, String), rotation: Rotation, now: Timestamp) -> Self {
        let time = |name: &str| {
            let name = name.strip_suffix(COMPRESSED).unwrap_or(name);
            let text = name.strip_prefix(prefix.as_str())?.strip_suffix(extension.as_str())?;
            let civil = DateTime::strptime(NAME_TIME, text).ok()?;
            TimeZone::UTC.to_timestamp(civil).ok()
        };
        let mut old: Vec<(Timestamp, &str)> =
            names.iter().filter_map(|name| Some((time(name)?, name.as_str()))).collect();
        old.sort_by(|a, b| b.cmp(a));
        let mut plan = Self::default();
        // A file that is being compressed is there twice, and counts once.
        let mut kept: Vec<&str> = Vec::new();
        for (time, name) in old {
            let plain = name.strip_suffix(COMPRESSED).unwrap_or(name);
            if !kept.contains(&plain) {
                kept.push(plain);
            }
            let too_many = rotation.max_backups > 0 && kept.len() > rotation.max_backups;
            let age = Duration::from_secs(rotation.max_age.saturating_mul(24 * 60 * 60));
            let too_old = rotation.max_age > 0 && now.checked_sub(age).is_ok_and(|cutoff| time < cutoff);
            if too_many || too_old {
                plan.remove.push(name);
            } else if rotation.compress && plain == name {
                plan.compress.push(name);
            }
        }
        plan
    }
}

/// Compresses a file, and removes it if that went well.
fn compress(path: &Path) -> io::Result<()> {
    let target = compressed(path);
    let written = (|| {
        let mut plain = BufReader::new(File::open(path)?);
        // One that is there is of an attempt that was cut short.
        let mut gzip = GzEncoder::new(private().write(true).truncate(true).open(&target)?, Compression::default());
        io::copy(&mut plain, &mut gzip)?;
        gzip.finish()?.sync_all()
    })();
    match written {
        Ok(()) => fs::remove_file(path),
        Err(error) => {
            // The plain file is still there.
            let _ = fs::remove_file(&target);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests;
