//! A leaf's secrets while the program runs: its own, and its credentials by name. Both follow their files.
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
    model::Auth,
    secrets::{Source, fits_header, read_file},
};

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

    /// Checks that the secret has this shape.
    pub(super) fn check(&self, secret: &str) -> Result<(), String> {
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

/// How a leaf authenticates, and where its own secret is.
#[derive(Debug, Clone)]
pub(super) struct AuthSource {
    pub(super) shape: Shape,
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
pub struct LeafSecrets {
    auth: Option<AuthSource>,
    folder: Option<PathBuf>,
    current: RwLock<Arc<Secrets>>,
}

#[derive(Clone, Default)]
struct Secrets {
    own: Option<SecretString>,
    credentials: BTreeMap<String, SecretString>,
}

impl fmt::Debug for LeafSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafSecrets")
            .field("auth", &self.auth)
            .field("folder", &self.folder)
            .field("credentials", &self.names())
            .finish()
    }
}

/// No secret at all.
impl Default for LeafSecrets {
    fn default() -> Self {
        Self::new(None, None).0
    }
}

impl LeafSecrets {
    /// Takes the leaf's own secret as it was read, and reads the folder of credentials. Returns what is
    /// wrong with single files too.
    pub(super) fn new(
        own: Option<(AuthSource, SecretString)>,
        folder: Option<PathBuf>,
    ) -> (Self, Vec<String>) {
        let (auth, own) = own.unzip();
        let first = Secrets {
            own,
            credentials: BTreeMap::new(),
        };
        let secrets = Self {
            auth,
            folder,
            current: RwLock::new(Arc::new(first)),
        };
        let problems = secrets.refresh().problems;
        (secrets, problems)
    }

    /// How a call with this `credential` authenticates; `Ok(None)` where the leaf wants nothing.
    ///
    /// # Errors
    ///
    /// The leaf has no credential of that name.
    pub fn auth_for(&self, credential: Option<&str>) -> Result<Option<Auth>, UnknownCredential> {
        let secrets = self.current();
        let secret = match credential {
            None => secrets.own.as_ref(),
            Some(name) => Some(secrets.credentials.get(name).ok_or(UnknownCredential)?),
        };
        let shape = self.auth.as_ref().map(|auth| &auth.shape);
        Ok(shape
            .zip(secret)
            .map(|(shape, secret)| shape.auth(secret.clone())))
    }

    /// The names of the credentials, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.current().credentials.keys().cloned().collect()
    }

    /// Reads the files again. Blocking, for as long as the file system takes.
    pub fn refresh(&self) -> Refreshed {
        let before = self.current();
        let mut problems = Vec::new();
        let mut after = (*before).clone();
        if let Some(auth) = &self.auth {
            match auth.reread() {
                Ok(Some(secret)) => after.own = Some(secret),
                // A variable of the environment stays as it is.
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
            if let Some(folder) = &self.folder {
                match read_folder(folder, &auth.shape, &before.credentials, &mut problems) {
                    Ok(credentials) => after.credentials = credentials,
                    Err(problem) => problems.push(problem),
                }
            }
        }
        let changed = !after.same(&before);
        if changed {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(after);
        }
        Refreshed { changed, problems }
    }

    fn current(&self) -> Arc<Secrets> {
        // Only whole values are swapped in, so a poisoned lock guards a good one.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AuthSource {
    /// The secret as its file has it now; `None` if it is not in a file.
    fn reread(&self) -> Result<Option<SecretString>, String> {
        let Source::File(path) = &self.source else {
            return Ok(None);
        };
        let secret = self.complete(&read_file(path)?);
        self.shape
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
        let own = match (&self.own, &other.own) {
            (None, None) => true,
            (Some(a), Some(b)) => same(a, b),
            _ => false,
        };
        own && self.credentials.len() == other.credentials.len()
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
    shape: &Shape,
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
            shape
                .check(secret.expose_secret())
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
