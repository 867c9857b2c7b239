//! Least privilege: each kind of role may do what its statements need, and nothing more. An app's role: `app_role.rs`.

mod exact;
mod functions;
mod way;

use leafhopper::store::roles::Kind;

use crate::harness::{
    Bed,
    app::App,
    database::{ROLE_PASSWORD, as_role},
};

/// A login that lives as long as its database; a role belongs to the whole server.
struct Login<'a> {
    bed: &'a Bed,
    name: String,
}

impl<'a> Login<'a> {
    /// With what `migrate` grants to a role of this kind.
    async fn new(bed: &'a Bed, kind: Kind) -> Self {
        let (option, short) = match kind {
            Kind::Sidecar => ("--grant-sidecar", "s"),
            Kind::Operator => ("--grant-operator", "o"),
            Kind::ReadOnly => ("--grant-readonly", "r"),
            other => panic!("{other:?} has no option"),
        };
        let name: String = format!("{short}_{}", bed.database.name)
            .chars()
            .take(63)
            .collect();
        bed.app
            .execute(&format!(
                "CREATE ROLE \"{name}\" LOGIN PASSWORD '{ROLE_PASSWORD}'"
            ))
            .await;
        let owner = crate::harness::sidecar::Config::new(&bed.database.url).sidecar();
        let granted = owner.command(&["migrate", option, &name]).await;
        assert!(granted.status.success(), "{granted:?}");
        Self { bed, name }
    }

    fn url(&self) -> String {
        as_role(&self.bed.database.url, &self.name)
    }

    async fn connect(&self) -> App {
        App::connect(&self.url()).await
    }

    async fn drop(self) {
        let name = &self.name;
        self.bed
            .app
            .execute(&format!("DROP OWNED BY \"{name}\"; DROP ROLE \"{name}\""))
            .await;
    }
}
