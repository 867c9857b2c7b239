//! A folder of a test's own, for files that it changes while a sidecar runs.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// It goes with this value.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("leafhopper-folder-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self { path }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, in one step for whoever reads it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, draft) = (self.path.join(name), self.path.join(format!(".{name}")));
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(&draft, &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).ok();
    }
}
