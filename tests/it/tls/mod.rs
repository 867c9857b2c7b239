//! TLS, to the database as libpq has it, and to leaves: who is trusted, who is refused, and what is said then.

mod authority;
mod client_certificates;
mod front;
mod leaves;
mod modes;
mod rotation;
mod server;
mod servers;
