//! What an application does: rows into the outbox, and rows back.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio_postgres::Statement;

use super::{
    database,
    wait::{LIMIT, until, until_within},
};

/// What a busy machine may take for a call, where there are many.
const A_CALL: Duration = Duration::from_millis(50);

/// So many questions keep their plans: who waits asks one or two again and again, and to plan what `leafhopper.call` is
/// made of takes twenty times as long as to answer it.
const QUESTIONS_KEPT: usize = 4;

/// An application's connection to its own database.
pub(crate) struct App {
    client: tokio_postgres::Client,
    /// What was asked last, the latest in front.
    questions: Mutex<VecDeque<(String, Statement)>>,
}

/// A row for the outbox; what is not said is left to the column's default.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    columns: Map<String, Value>,
}

/// A POST to `/things` of that leaf.
pub(crate) fn call(leaf: &str) -> Call {
    let columns = Map::from_iter([
        ("leaf".to_owned(), json!(leaf)),
        ("path".to_owned(), json!("/things")),
    ]);
    Call { columns }
}

/// The same with an effect key, which its body names too, for the leaf to count by.
pub(crate) fn keyed(leaf: &str, key: &str) -> Call {
    call(leaf).key(key).body(json!({ "key": key }))
}

impl Call {
    /// The effect key.
    pub(crate) fn key(self, key: &str) -> Self {
        self.set("key", key)
    }

    /// The method.
    pub(crate) fn method(self, method: &str) -> Self {
        self.set("method", method)
    }

    /// The path under the leaf's base.
    pub(crate) fn path(self, path: &str) -> Self {
        self.set("path", path)
    }

    /// The JSON body.
    pub(crate) fn body(self, body: Value) -> Self {
        self.set("body", body)
    }

    /// The body as bytes of that type.
    pub(crate) fn body_raw(self, content_type: &str, text: &str) -> Self {
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.set("content_type", content_type)
            .set("body_raw", format!("\\x{hex}"))
    }

    /// Its batch.
    pub(crate) fn batch(self, id: uuid::Uuid) -> Self {
        self.set("batch_id", id.to_string())
    }

    /// Any column, in the form that `jsonb_populate_record` reads.
    pub(crate) fn set(mut self, column: &str, value: impl Into<Value>) -> Self {
        self.columns.insert(column.to_owned(), value.into());
        self
    }

    fn insert_sql(&self) -> String {
        let columns = self
            .columns
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        format!(
            "INSERT INTO leafhopper.outbox ({columns}) SELECT {columns} FROM \
             jsonb_populate_record(NULL::leafhopper.outbox, $1) RETURNING id"
        )
    }
}

impl App {
    /// Connects as the superuser of the url.
    pub(crate) async fn connect(url: &str) -> Self {
        Self {
            client: database::connect(url).await,
            questions: Mutex::default(),
        }
    }

    /// The connection, for what has no method here.
    pub(crate) fn client(&self) -> &tokio_postgres::Client {
        &self.client
    }

    /// Inserts the row in a transaction of its own (or in the one that `BEGIN` has opened); gives its id.
    pub(crate) async fn insert(&self, call: Call) -> i64 {
        let sql = call.insert_sql();
        let row = self
            .client
            .query_one(&sql, &[&Value::Object(call.columns)])
            .await;
        row.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
            .get(0)
    }

    /// Inserts a row with these columns and SQL values, to which a leaf and a path are added where they are not
    /// among the columns.
    pub(crate) async fn try_insert(
        &self,
        columns: &str,
        values: &str,
    ) -> Result<i64, tokio_postgres::Error> {
        let (mut columns, mut values) = (columns.to_owned(), values.to_owned());
        for (column, value) in [("leaf", "'leaf'"), ("path", "'/things'")] {
            if !columns.split(", ").any(|named| named == column) {
                columns = format!("{columns}, {column}");
                values = format!("{values}, {value}");
            }
        }
        let sql =
            format!("INSERT INTO leafhopper.outbox ({columns}) VALUES ({values}) RETURNING id");
        Ok(self.client.query_one(&sql, &[]).await?.get(0))
    }

    /// As [`Self::try_insert`], of a row that must be taken; gives its id.
    pub(crate) async fn insert_values(&self, columns: &str, values: &str) -> i64 {
        let inserted = self.try_insert(columns, values).await;
        inserted.unwrap_or_else(|error| panic!("({columns}) = ({values}): {error:?}"))
    }

    /// Runs any statements.
    pub(crate) async fn execute(&self, sql: &str) {
        self.client
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The rows of any query, as JSON objects.
    pub(crate) async fn rows(&self, sql: &str) -> Vec<Value> {
        let sql = format!("SELECT to_jsonb(found) FROM ({sql}) AS found");
        let answer = async {
            let question = self.question(&sql).await?;
            self.client.query(&question, &[]).await
        };
        let rows = answer.await;
        let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn question(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        let known = || {
            self.questions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let asked = known().iter().find(|(text, _)| text == sql).cloned();
        let (text, question) = match asked {
            Some(asked) => asked,
            None => (sql.to_owned(), self.client.prepare(sql).await?),
        };
        let mut questions = known();
        questions.retain(|(text, _)| text != sql);
        questions.push_front((text, question.clone()));
        questions.truncate(QUESTIONS_KEPT);
        Ok(question)
    }

    /// A call as `leafhopper.call` shows it.
    pub(crate) async fn call(&self, id: i64) -> Value {
        let mut rows = self
            .rows(&format!("SELECT * FROM leafhopper.call WHERE id = {id}"))
            .await;
        assert_eq!(
            rows.len(),
            1,
            "rows of call {id} in leafhopper.call: {rows:#?}"
        );
        rows.remove(0)
    }

    /// A call's state.
    pub(crate) async fn state(&self, id: i64) -> String {
        self.call(id).await["state"].as_str().unwrap().to_owned()
    }

    /// Waits until the call is in that state; gives the row.
    pub(crate) async fn until_state(&self, id: i64, state: &str) -> Value {
        until(&format!("call {id} is {state}"), async || {
            let call = self.call(id).await;
            if call["state"] == state {
                Ok(call)
            } else {
                Err(call)
            }
        })
        .await
    }

    /// Waits until there are this many calls, and all of them are confirmed.
    pub(crate) async fn until_all_confirmed(&self, calls: usize) {
        let limit = LIMIT + A_CALL * u32::try_from(calls).unwrap();
        until_within(limit, "all calls are confirmed", async || {
            let sql = "SELECT state, reason, count(*) FROM leafhopper.call GROUP BY 1, 2";
            let states = self.rows(sql).await;
            let all = json!({"state": "confirmed", "reason": null, "count": calls});
            if states == [all] { Ok(()) } else { Err(states) }
        })
        .await;
    }

    /// Waits until no sidecar's session is idle in a transaction.
    pub(crate) async fn no_transaction_is_left(&self) {
        until("no session is idle in a transaction", async || {
            let sql = "SELECT state, query FROM pg_stat_activity \
                        WHERE datname = current_database() AND application_name LIKE 'leafhopper%' \
                          AND state LIKE 'idle in transaction%' \
                          AND state_change < clock_timestamp() - interval '100 ms'";
            let left = self.rows(sql).await;
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// The results of a key, oldest generation first.
    pub(crate) async fn results(&self, leaf: &str, key: &str) -> Vec<Value> {
        self.rows(&format!(
            "SELECT * FROM leafhopper.result WHERE leaf = {} AND key = {} ORDER BY generation",
            literal(leaf),
            literal(key)
        ))
        .await
    }

    /// The attempts that a call's history keeps, in order.
    pub(crate) async fn attempts(&self, id: i64) -> Vec<Value> {
        self.rows(&format!(
            "SELECT * FROM leafhopper.attempt WHERE call_id = {id} ORDER BY attempt, started_at"
        ))
        .await
    }

    /// A call's history in one line: classes with their statuses.
    pub(crate) async fn history(&self, id: i64) -> String {
        let attempts = self.attempts(id).await;
        let words = attempts.iter().map(|attempt| {
            let class = attempt["class"].as_str().unwrap();
            match attempt["status"].as_u64() {
                Some(status) => format!("{class} {status}"),
                None => class.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A string as SQL writes it.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
