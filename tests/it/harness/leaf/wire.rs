//! The leaf's HTTP/1.1, by hand: no server library resets, stalls and truncates on demand.

use std::{fmt::Write, io, sync::Arc};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use super::{
    Reply, Request, Shared,
    ledger::{Executed, effect_in_path},
    script::{Delivery, Rule},
};
use crate::harness::wait;

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let resets = {
            let left = &mut shared.books().resets_at_accept;
            let resets = *left > 0;
            *left = left.saturating_sub(1);
            resets
        };
        if resets {
            stream.set_zero_linger().unwrap();
            continue;
        }
        connections.spawn(serve(BufReader::new(stream), Arc::clone(&shared)));
        // Those that have ended are not kept.
        while connections.try_join_next().is_some() {}
    }
}

/// One request after another, until one side has had enough.
async fn serve(mut stream: BufReader<TcpStream>, shared: Arc<Shared>) {
    while let Ok(Some((head, length))) = read_head(&mut stream).await {
        let early = shared.early_rule(&head);
        let mut request = head;
        if early.is_none() {
            request.body = vec![0; length];
            if stream.read_exact(&mut request.body).await.is_err() {
                return;
            }
        }
        let request = request.with_key();
        let number = shared.books().ledger.arrived(request.clone());
        let rule = early.or_else(|| shared.rule(&request));
        let goes_on = answer(&mut stream, &shared, number, &request, rule).await;
        if !goes_on {
            return;
        }
    }
}

/// Whether the connection can take another request.
async fn answer(
    stream: &mut BufReader<TcpStream>,
    shared: &Shared,
    number: usize,
    request: &Request,
    rule: Option<Rule>,
) -> bool {
    let mut delivery = Delivery::Whole;
    let reply = match rule {
        None => shared.by_default(number, request),
        Some(rule) => {
            if let Some(gate) = &rule.gate_before {
                gate.pass().await;
            }
            if !rule.takes.is_zero() {
                wait::service_time(rule.takes).await;
            }
            let reply = shared.by_rule(number, request, &rule);
            if let Some(gate) = &rule.gate_after {
                gate.pass().await;
            }
            delivery = rule.delivery;
            reply
        }
    };
    // Before the answer: with it in hand, the client's next request may be here at once.
    shared.books().ledger.done(number);
    let delivered = deliver(stream, request, &reply, delivery).await;
    let whole = delivered.is_ok_and(|whole| whole);
    if whole {
        shared.books().ledger.requests[number - 1].answered = true;
    }
    whole
}

impl Shared {
    /// A rule that does not want the body, for a request of which only the head is there.
    fn early_rule(&self, head: &Request) -> Option<Rule> {
        let head = head.clone().with_key();
        let mut books = self.books();
        let mut rules = books
            .rules
            .iter_mut()
            .rev()
            .filter(|rule| rule.leaves_the_body_unread());
        rules.find_map(|rule| rule.takes_on(&head).then(|| rule.clone()))
    }

    fn rule(&self, request: &Request) -> Option<Rule> {
        let books = &mut *self.books();
        let mut rules = books
            .rules
            .iter_mut()
            .rev()
            .filter(|rule| !rule.leaves_the_body_unread());
        let rule = rules.find_map(|rule| rule.takes_on(request).then(|| rule.clone()));
        rule.or_else(|| books.chooser.as_mut()?(request))
    }

    fn by_default(&self, number: usize, request: &Request) -> Reply {
        match (request.method.as_str(), effect_in_path(&request.path)) {
            ("GET" | "HEAD", Some(key)) => self
                .books()
                .ledger
                .standing_number(&key)
                .map_or(Reply::new(404), |id| {
                    Reply::json(200, &json!({ "id": id, "key": key }))
                }),
            ("GET" | "HEAD", None) => Reply::json(200, &json!({})),
            ("DELETE", Some(key)) => {
                let books = &mut *self.books();
                let idempotency = books.idempotency.as_ref();
                let reply = |undone| Reply::new(if undone { 204 } else { 404 });
                books.ledger.undo_once(number, idempotency, &key, reply)
            }
            _ => self.executed(number, request, &Rule::new()),
        }
    }

    fn by_rule(&self, number: usize, request: &Request, rule: &Rule) -> Reply {
        if rule.executes {
            match (request.method.as_str(), effect_in_path(&request.path)) {
                ("GET" | "HEAD", _) => rule.reply.clone(),
                ("DELETE", Some(key)) => {
                    let books = &mut *self.books();
                    let idempotency = books.idempotency.as_ref();
                    let reply = |_undone| rule.reply.clone();
                    books.ledger.undo_once(number, idempotency, &key, reply)
                }
                _ => self.executed(number, request, rule),
            }
        } else {
            let books = &mut *self.books();
            let idempotency = books.idempotency.as_ref();
            let first = books
                .ledger
                .refuse_once(number, idempotency, rule.reply.clone());
            first.unwrap_or_else(|| rule.reply.clone())
        }
    }

    fn executed(&self, number: usize, request: &Request, rule: &Rule) -> Reply {
        let books = &mut *self.books();
        let reply = &rule.reply;
        if rule.unique && books.ledger.standing(&request.key) > 0 {
            return Reply::new(409);
        }
        let usual = |id: usize| {
            let mut usual = match &reply.body {
                Some(body) => Reply::bytes(reply.status, body.clone()),
                None => Reply::json(reply.status, &json!({ "id": id, "key": request.key })),
            };
            usual.headers.extend(reply.headers.iter().cloned());
            usual
        };
        match books
            .ledger
            .execute_once(number, books.idempotency.as_ref(), usual)
        {
            Executed::Before(first) => first,
            Executed::Now(effect) => usual(effect),
        }
    }
}

/// The request without its body, and how long that is; `None` at the connection's end.
async fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<Option<(Request, usize)>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut lines = lines.into_iter();
    let first = lines.next().ok_or_else(invalid)?;
    let (method, rest) = first.split_once(' ').ok_or_else(invalid)?;
    let (path, _) = rest.rsplit_once(' ').ok_or_else(invalid)?;
    let headers: Vec<_> = lines
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let request = Request {
        number: 0,
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        body: Vec::new(),
        key: String::new(),
        at: Instant::now(),
        executed: false,
        replayed: false,
        answered: false,
    };
    // The calls' bodies have a known length; none comes in chunks.
    let length = request.header("content-length").map_or(Ok(0), str::parse);
    Ok(Some((request, length.map_err(io::Error::other)?)))
}

/// Whether all of it went out, and the connection can take another request.
async fn deliver(
    stream: &mut BufReader<TcpStream>,
    request: &Request,
    reply: &Reply,
    delivery: Delivery,
) -> io::Result<bool> {
    let body = reply.body.as_deref().unwrap_or_default();
    let head = head_of(reply, body.len());
    // A HEAD's answer has the length of the body that it does not carry.
    let body = if request.method == "HEAD" { &[] } else { body };
    match delivery {
        Delivery::Whole => {
            stream.write_all(&[head.as_bytes(), body].concat()).await?;
            return Ok(true);
        }
        Delivery::ResetUnread | Delivery::Reset => stream.get_ref().set_zero_linger()?,
        Delivery::Closed => {}
        Delivery::Hangs => std::future::pending().await,
        Delivery::StallsMidBody => {
            stream
                .write_all(&[head.as_bytes(), &body[..body.len() / 2]].concat())
                .await?;
            std::future::pending().await
        }
        Delivery::Truncated => {
            stream
                .write_all(&[head.as_bytes(), &body[..body.len() / 2]].concat())
                .await?;
        }
        Delivery::Raw(bytes) => stream.write_all(&bytes).await?,
    }
    Ok(false)
}

fn head_of(reply: &Reply, length: usize) -> String {
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    // 204 and 304 have no body and say no length.
    if !matches!(reply.status, 204 | 304) {
        write!(head, "content-length: {length}\r\n").unwrap();
    }
    head + "\r\n"
}
