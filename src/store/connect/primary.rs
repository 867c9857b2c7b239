//! Which of the servers is the primary is asked as a connection is opened, and can change while it lives.
//!
//! A primary that is fenced instead of stopped goes on to answer: what was connected to it would read what is old, and
//! fail at each write, for as long as its sessions live. The first connection that learns so ends the term for all: every
//! pool that was made of the same connection string closes what it opened before.
//!
//! `default_transaction_read_only` is such a fence. So no transaction of the store insists on `READ WRITE`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tokio_postgres::Connection;

/// The primary's term, as far as this process knows.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct Primary(Arc<watch::Sender<u64>>);

/// The time of one primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Term(u64);

impl Primary {
    /// The term now: to be read before a connection is opened.
    pub(in crate::store) fn term(&self) -> Term {
        Term(*self.0.borrow())
    }

    /// That term is over. Nothing happens where a later one has begun: its connections are of another server.
    pub(in crate::store) fn over(&self, Term(term): Term) {
        self.0.send_if_modified(|now| {
            let is_now = *now == term;
            *now += u64::from(is_now);
            is_now
        });
    }

    /// Waits until that term is over.
    pub(in crate::store) async fn until_over(&self, Term(term): Term) {
        let mut terms = self.0.subscribe();
        // Its sender is here.
        terms.wait_for(|now| *now != term).await.ok();
    }

    /// Drives a connection that was opened in that term. Servers say by themselves, with the reply to whatever they are
    /// asked, that they have become read-only (PostgreSQL 14, chapter 34.1.2).
    pub(in crate::store) fn drive<S, T>(
        &self,
        term: Term,
        connection: &mut Connection<S, T>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), tokio_postgres::Error>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let polled = Pin::new(&mut *connection).poll(context);
        if connection.parameter("default_transaction_read_only") == Some("on") {
            self.over(term);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_late_word_about_an_earlier_term_ends_none() {
        let primary = Primary::default();
        let (first, others) = (primary.term(), primary.clone());
        primary.over(first);
        others.until_over(first).await;
        let second = others.term();
        assert_ne!(second, first);
        others.over(first);
        assert_eq!(primary.term(), second);
    }
}
