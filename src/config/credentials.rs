//! A leaf's secrets while the program runs, those that it is asked with and those that requests are signed with: its
//! own, and its credentials by name. All follow their files.
//!
//! [`LeafSecrets::refresh`] reads every file and swaps what differs. It is called every 5 seconds and
//! after a 401. It always reads: a file that is rewritten in place within one tick of the file system's
//! clock can't be told by its times, and a folder of a hundred small files takes about a millisecond.
//! What can't be read leaves the former secret in force, and is said.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    model::{Auth, Proofs, Signer},
    secrets::{Source, fits_header, read_file},
};
use crate::domain::signature::Signing;

/// How a leaf's secrets become a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Bearer,
    Basic,
    Header(String),
}

impl Shape {
    /// The shape and the secret together.
    pub(super) fn auth(&self, secret: SecretString) -> Auth {
        match self {
            Self::Bearer => Auth::Bearer(secret),
            Self::Basic => Auth::Basic(secret),
            Self::Header(name) => Auth::Header {
                name: name.clone(),
                value: secret,
            },
        }
    }
}

impl Form for Shape {
    fn check(&self, secret: &str) -> Result<(), String> {
        match self {
            Self::Bearer | Self::Header(_) => fits_header(secret),
            Self::Basic => {
                if !secret.contains(':') {
                    return Err("the secret is not of the form user:password".to_owned());
                }
                fits_basic(secret)
            }
        }
    }
}

/// Basic authentication carries no control characters (RFC 7617 section 2).
pub(super) fn fits_basic(text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) {
        return Err("the secret holds a control character (RFC 7617 section 2)".to_owned());
    }
    Ok(())
}

/// What a secret has to look like.
pub(super) trait Form {
    /// Checks that the secret has this form.
    fn check(&self, secret: &str) -> Result<(), String>;
}

impl Form for Signing {
    fn check(&self, secret: &str) -> Result<(), String> {
        self.check(secret)
    }
}

/// A leaf's own secret of one kind: its form, and where it is.
#[derive(Debug, Clone)]
pub(super) struct SecretSource<F> {
    pub(super) form: F,
    pub(super) source: Source,
    /// Goes before the file's text: `user:` of Basic.
    pub(super) prefix: String,
}

/// No credential of that name is there; the call waits, visibly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no credential of that name")]
pub struct UnknownCredential;

/// What a [`LeafSecrets::refresh`] found.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "what could not be read has to be logged"]
pub struct Refreshed {
    /// Whether a secret is another one now, came or went.
    pub changed: bool,
    /// What could not be read, for the log; holds no secret.
    pub problems: Vec<String>,
}

/// The secrets of one leaf. Shared; a reader gets a copy of what holds at that moment.
#[derive(Debug, Default)]
pub struct LeafSecrets {
    auth: Option<Ring<Shape>>,
    signing: Option<Ring<Signing>>,
}

impl LeafSecrets {
    pub(super) fn new(auth: Option<Ring<Shape>>, signing: Option<Ring<Signing>>) -> Self {
        Self { auth, signing }
    }

    /// What a call with this `credential` shows of itself. A folder that the leaf has for names must know it, be it
    /// that of `auth`, of `signing`, or both; of the other one the leaf's own secret holds.
    ///
    /// # Errors
    ///
    /// The leaf has no credential of that name.
    pub fn proofs_for(&self, credential: Option<&str>) -> Result<Proofs, UnknownCredential> {
        if credential.is_some() && self.folders().next().is_none() {
            return Err(UnknownCredential);
        }
        let auth = self.auth.as_ref().map(|ring| {
            let secret = ring.secret(credential)?;
            Ok(ring.own.form.auth(secret))
        });
        let signer = self.signing.as_ref().map(|ring| {
            let secret = ring.secret(credential)?;
            Ok(Signer {
                signing: ring.own.form.clone(),
                secret,
            })
        });
        Ok(Proofs {
            auth: auth.transpose()?,
            signer: signer.transpose()?,
        })
    }

    /// The names of the credentials, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut folders = self.folders();
        let mut names = folders.next().unwrap_or_default();
        for others in folders {
            names.retain(|name| others.contains(name));
        }
        names
    }

    /// The names that each folder has.
    fn folders(&self) -> impl Iterator<Item = Vec<String>> {
        let auth = self.auth.as_ref().and_then(Ring::names);
        let signing = self.signing.as_ref().and_then(Ring::names);
        auth.into_iter().chain(signing)
    }

    /// Reads the files again. Blocking, for as long as the file system takes.
    pub fn refresh(&self) -> Refreshed {
        let rings = [
            self.auth.as_ref().map(Ring::refresh),
            self.signing.as_ref().map(Ring::refresh),
        ];
        let mut all = Refreshed::default();
        for mut refreshed in rings.into_iter().flatten() {
            all.changed |= refreshed.changed;
            all.problems.append(&mut refreshed.problems);
        }
        all
    }
}

/// The secrets of one kind: the leaf's own, and those by name.
pub(super) struct Ring<F> {
    own: SecretSource<F>,
    folder: Option<PathBuf>,
    current: RwLock<Arc<Secrets>>,
}

#[derive(Clone)]
struct Secrets {
    own: SecretString,
    credentials: BTreeMap<String, SecretString>,
}

impl<F: fmt::Debug> fmt::Debug for Ring<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("own", &self.own)
            .field("folder", &self.folder)
            .field("credentials", &self.names())
            .finish()
    }
}

impl<F> Ring<F> {
    /// `None` without a folder.
    fn names(&self) -> Option<Vec<String>> {
        self.folder.as_ref()?;
        Some(self.current().credentials.keys().cloned().collect())
    }

    fn secret(&self, credential: Option<&str>) -> Result<SecretString, UnknownCredential> {
        let secrets = self.current();
        match credential {
            Some(name) if self.folder.is_some() => {
                let secret = secrets.credentials.get(name);
                secret.cloned().ok_or(UnknownCredential)
            }
            _ => Ok(secrets.own.clone()),
        }
    }

    fn current(&self) -> Arc<Secrets> {
        // Only whole values are swapped in, so a poisoned lock guards a good one.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F: Form> Ring<F> {
    /// Takes the leaf's own secret as it was read, and reads the folder of credentials. Returns what is
    /// wrong with single files too.
    pub(super) fn new(
        own: SecretSource<F>,
        secret: SecretString,
        folder: Option<PathBuf>,
    ) -> (Self, Vec<String>) {
        let first = Secrets {
            own: secret,
            credentials: BTreeMap::new(),
        };
        let ring = Self {
            own,
            folder,
            current: RwLock::new(Arc::new(first)),
        };
        let problems = ring.refresh().problems;
        (ring, problems)
    }

    fn refresh(&self) -> Refreshed {
        let before = self.current();
        let mut problems = Vec::new();
        let mut after = (*before).clone();
        match self.own.reread() {
            Ok(Some(secret)) => after.own = secret,
            // A variable of the environment stays as it is.
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
        if let Some(folder) = &self.folder {
            match read_folder(folder, &self.own.form, &before.credentials, &mut problems) {
                Ok(credentials) => after.credentials = credentials,
                Err(problem) => problems.push(problem),
            }
        }
        let changed = !after.same(&before);
        if changed {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(after);
        }
        Refreshed { changed, problems }
    }
}

impl<F: Form> SecretSource<F> {
    /// The secret as its file has it now; `None` if it is not in a file.
    fn reread(&self) -> Result<Option<SecretString>, String> {
        let Source::File(path) = &self.source else {
            return Ok(None);
        };
        let secret = self.complete(&read_file(path)?);
        self.form
            .check(secret.expose_secret())
            .map_err(|problem| format!("{}: {problem}", path.display()))?;
        Ok(Some(secret))
    }

    /// What the header is made of.
    pub(super) fn complete(&self, secret: &SecretString) -> SecretString {
        format!("{}{}", self.prefix, secret.expose_secret()).into()
    }
}

impl Secrets {
    fn same(&self, other: &Self) -> bool {
        let same = |a: &SecretString, b: &SecretString| a.expose_secret() == b.expose_secret();
        same(&self.own, &other.own)
            && self.credentials.len() == other.credentials.len()
            && self
                .credentials
                .iter()
                .zip(&other.credentials)
                .all(|((name, a), (other_name, b))| name == other_name && same(a, b))
    }
}

/// One file for each credential. Names that begin with a dot are skipped: Kubernetes keeps the real files
/// of a mounted secret in such folders, behind the symbolic links that are read here.
fn read_folder(
    folder: &Path,
    form: &impl Form,
    before: &BTreeMap<String, SecretString>,
    problems: &mut Vec<String>,
) -> Result<BTreeMap<String, SecretString>, String> {
    let unreadable =
        |source: std::io::Error| format!("{} can't be read: {source}", folder.display());
    let mut credentials = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || path.is_dir() {
            continue;
        }
        if !is_credential_name(&name) {
            problems.push(format!(
                "{}: a credential's name is made of A-Z, a-z, 0-9, `_`, `.`, `-`; 100 at most",
                path.display()
            ));
            continue;
        }
        let read = read_file(&path).and_then(|secret| {
            form.check(secret.expose_secret())
                .map_err(|problem| format!("{}: {problem}", path.display()))?;
            Ok(secret)
        });
        match read {
            Ok(secret) => {
                credentials.insert(name.into_owned(), secret);
            }
            Err(problem) => {
                problems.push(problem);
                if let Some(former) = before.get(name.as_ref()) {
                    credentials.insert(name.into_owned(), former.clone());
                }
            }
        }
    }
    Ok(credentials)
}

fn is_credential_name(name: &str) -> bool {
    (1..=100).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}
