//! The operator's page, over plain HTTP and in a real browser.

mod browser;
mod deeds;
mod entry;
mod pictures;
mod rows;
mod scene;
mod sights;
mod story;
pub(crate) mod visitor;
