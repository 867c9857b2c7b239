//! What a connection string says about TLS, in libpq's words (PostgreSQL, sections 34.1.2 and 34.19).
//!
//! Its files have libpq's usual places, below `~/.postgresql`. Where this differs from libpq:
//! - `prefer` and `allow` verify nothing, so a root file is refused with them; libpq verifies, and falls back to clear
//!   text where that fails.
//! - `verify-full` without a root file trusts the system's authorities; libpq refuses.
//! - A file that is named has to be there, whatever the mode.

use std::path::{Path, PathBuf};

use super::{
    ConnectError,
    params::{Params, wrong},
    tls::{Client, Files, Roots, Verify, Versions},
};

/// How much TLS is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// Clear text.
    Disable,
    /// Clear text first, then TLS.
    Allow,
    /// TLS first, then clear text.
    Prefer,
    /// TLS. With a root file as `verify-ca`.
    Require,
    /// TLS, with a certificate of an authority that is trusted.
    VerifyCa,
    /// The same, and for this name.
    VerifyFull,
}

/// `sslmode` and what it means.
const MODES: [(&str, Mode); 6] = [
    ("disable", Mode::Disable),
    ("allow", Mode::Allow),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

impl Mode {
    /// As it is written.
    pub(super) fn name(self) -> &'static str {
        let found = MODES.into_iter().find(|(_, mode)| *mode == self);
        found.map_or("", |(name, _)| name)
    }
}

/// What the string says about TLS.
pub(super) struct Ssl {
    pub(super) mode: Mode,
    pub(super) files: Files,
}

impl Ssl {
    /// Takes the parameters of TLS out of `params`. `usual` is the folder with the files that nobody has to name.
    pub(super) fn take(params: &mut Params, usual: Option<&Path>) -> Result<Self, ConnectError> {
        let root = params.take("sslrootcert").filter(|file| !file.is_empty());
        let system = root.as_deref() == Some("system");
        let mode = mode(params.take("sslmode").as_deref(), system)?;
        let usual = |name: &str| {
            let file = usual.map(|folder| folder.join(name));
            file.filter(|file| file.is_file())
        };
        let (verify, roots) = trust(mode, root.as_deref(), usual("root.crt"))?;
        let crl = params.take("sslcrl").filter(|file| !file.is_empty());
        let verifies = matches!(verify, Verify::Chain | Verify::ChainAndName);
        if crl.is_some() && !verifies && mode != Mode::Disable {
            return Err(wrong(
                "sslcrl",
                "no certificate is verified here; use sslmode=verify-full with it",
            ));
        }
        let crl = crl.map(PathBuf::from).or_else(|| usual("root.crl"));
        let named = Named {
            cert: params.take("sslcert").map(PathBuf::from),
            key: params.take("sslkey").map(PathBuf::from),
            mode: params.take("sslcertmode"),
        };
        let direct = match params.take("sslnegotiation").as_deref() {
            None | Some("postgres") => false,
            Some("direct") if mode >= Mode::Require => true,
            Some("direct") => {
                return Err(wrong(
                    "sslnegotiation",
                    "`direct` never uses clear text; use sslmode=require, verify-ca or verify-full \
                     with it",
                ));
            }
            Some(_) => return Err(wrong("sslnegotiation", "one of postgres, direct is wanted")),
        };
        let files = Files {
            verify,
            roots,
            client: named.client(mode, usual)?,
            crl: crl.filter(|_| verifies),
            versions: versions(params)?,
            sni: switch(params, "sslsni")?,
            direct,
        };
        Ok(Self { mode, files })
    }

    /// What works but is probably not meant, where the database is not on this machine.
    pub(super) fn warning(&self) -> Option<String> {
        let name = self.mode.name();
        match (self.mode, self.files.verify) {
            (Mode::Prefer, _) => Some(format!(
                "sslmode={name}: a server, or somebody in between, that says it has no TLS gets \
                 everything in clear; use verify-full"
            )),
            (Mode::Allow, _) => Some(format!(
                "sslmode={name} asks for clear text first, and encrypts only where that is refused; \
                 use verify-full"
            )),
            (Mode::Require, Verify::Encrypted) => Some(format!(
                "sslmode={name} without a root file encrypts, and does not look with whom: somebody \
                 in between can be the server; use verify-full, with sslrootcert=/path/to/ca.pem \
                 where the authority is your own"
            )),
            _ => None,
        }
    }
}

fn mode(written: Option<&str>, system: bool) -> Result<Mode, ConnectError> {
    let mode = match written {
        // As libpq does: less than all would be good for nothing there.
        None if system => Mode::VerifyFull,
        None => Mode::Prefer,
        Some(written) => MODES
            .into_iter()
            .find(|(name, _)| *name == written)
            .map(|(_, mode)| mode)
            .ok_or_else(|| {
                let names = MODES.map(|(name, _)| name).join(", ");
                wrong("sslmode", format!("one of {names} is wanted"))
            })?,
    };
    if system && ![Mode::VerifyFull, Mode::Disable].contains(&mode) {
        return Err(wrong(
            "sslrootcert",
            format!(
                "anybody can have a certificate of the system's authorities, so `system` wants \
                 sslmode=verify-full, not {}",
                mode.name()
            ),
        ));
    }
    Ok(mode)
}

/// What is verified, and against what.
fn trust(
    mode: Mode,
    root: Option<&str>,
    usual: Option<PathBuf>,
) -> Result<(Verify, Roots), ConnectError> {
    let named = root.filter(|file| *file != "system").map(PathBuf::from);
    let system = root == Some("system");
    Ok(match mode {
        Mode::Disable => (Verify::Nothing, Roots::None),
        Mode::Allow | Mode::Prefer if named.is_some() => {
            return Err(wrong(
                "sslrootcert",
                format!(
                    "sslmode={} verifies nothing; use verify-full or verify-ca with it",
                    mode.name()
                ),
            ));
        }
        Mode::Allow | Mode::Prefer => (Verify::Encrypted, Roots::None),
        Mode::Require => match named.or(usual) {
            Some(file) => (Verify::Chain, Roots::File(file)),
            None => (Verify::Encrypted, Roots::None),
        },
        Mode::VerifyCa => {
            let file = named.or(usual).ok_or_else(|| {
                wrong(
                    "sslrootcert",
                    "missing, and there is no ~/.postgresql/root.crt; verify-ca wants the file of \
                     your own authority, as anybody can have a certificate of the system's. With \
                     these use verify-full",
                )
            })?;
            (Verify::Chain, Roots::File(file))
        }
        Mode::VerifyFull => {
            let file = named.or_else(|| usual.filter(|_| !system));
            let roots = file.map_or(Roots::System, Roots::File);
            (Verify::ChainAndName, roots)
        }
    })
}

/// The client's certificate, as it is named.
struct Named {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    mode: Option<String>,
}

impl Named {
    fn client(
        self,
        mode: Mode,
        usual: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Option<Client>, ConnectError> {
        match self.mode.as_deref() {
            None | Some("allow") => {}
            Some("disable") => return Ok(None),
            Some("require") => {
                return Err(wrong(
                    "sslcertmode",
                    "whether the server asked for a certificate can't be seen here; use allow (the \
                     default), and let pg_hba.conf demand it",
                ));
            }
            Some(_) => return Err(wrong("sslcertmode", "one of disable, allow is wanted")),
        }
        if mode == Mode::Disable {
            return Ok(None);
        }
        let together = || wrong("sslcert", "`sslcert` and `sslkey` only make sense together");
        let Some(cert) = self.cert.or_else(|| usual("postgresql.crt")) else {
            return match self.key {
                None => Ok(None),
                Some(_) => Err(together()),
            };
        };
        let key = self.key.or_else(|| usual("postgresql.key"));
        let key = key.ok_or_else(together)?;
        Ok(Some(Client { cert, key }))
    }
}

fn versions(params: &mut Params) -> Result<Versions, ConnectError> {
    const LOWEST: &str = "ssl_min_protocol_version";
    const HIGHEST: &str = "ssl_max_protocol_version";
    let lowest = params.take(LOWEST);
    let highest = params.take(HIGHEST);
    let without_12 = match lowest.as_deref() {
        // Older ones are not spoken anyway.
        None | Some("" | "TLSv1" | "TLSv1.1" | "TLSv1.2") => false,
        Some("TLSv1.3") => true,
        Some(_) => return Err(wrong(LOWEST, "one of TLSv1.2, TLSv1.3 is wanted")),
    };
    match highest.as_deref() {
        None | Some("" | "TLSv1.3") if without_12 => Ok(Versions::Only13),
        None | Some("" | "TLSv1.3") => Ok(Versions::All),
        Some("TLSv1.2") if without_12 => Err(wrong(HIGHEST, "is below ssl_min_protocol_version")),
        Some("TLSv1.2") => Ok(Versions::Only12),
        Some("TLSv1" | "TLSv1.1") => Err(wrong(
            HIGHEST,
            "TLS below 1.2 is broken, and not spoken here",
        )),
        Some(_) => Err(wrong(HIGHEST, "one of TLSv1.2, TLSv1.3 is wanted")),
    }
}

/// `1`, the default, or `0`.
fn switch(params: &mut Params, name: &str) -> Result<bool, ConnectError> {
    match params.take(name).as_deref() {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err(wrong(name, "1 or 0 is wanted")),
    }
}
