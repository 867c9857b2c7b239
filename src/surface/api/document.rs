//! The OpenAPI document, made of the routes themselves.

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse as _, Response as Answer},
};
use utoipa::{
    OpenApi as _,
    openapi::{
        Content, Object, OpenApi, Ref, RefOr, Response, ResponseBuilder, Type,
        path::{Operation, ParameterIn},
        schema::{ObjectBuilder, Schema},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::super::Surface;

/// The name of the one way to show the token.
const TOKEN: &str = "token";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "leafhopper",
        description = "What an operator of leafhopper reads and does. Each change wants a reason, and is kept with who \
            made it. Errors are problems (RFC 9457).\n\n\
            With a `listen.admin_token`, everything here needs it. Without one, it works on this machine alone: on a \
            listener on a loopback address, for a Host that is this machine, and actions only for no other origin.",
    ),
    servers((url = "/")),
    tags(
        (name = "calls", description = "Calls: one row of the outbox each."),
        (name = "batches", description = "Calls that stand or fall together."),
        (name = "leaves", description = "The services that calls are made to."),
        (name = "instances", description = "The running sidecars."),
        (name = "jobs", description = "Actions on many calls, which go on by themselves."),
        (name = "document", description = "This document."),
    ),
)]
struct Head;

/// What stands before the routes.
pub(super) fn head() -> OpenApi {
    Head::openapi()
}

/// The document's own description.
#[utoipa::path(get, path = "/api/v1/openapi.json", operation_id = "openapi", tag = "document",
    responses((status = 200, description = "This document.", body = serde_json::Value)))]
pub(super) async fn serve(State(surface): State<Surface>) -> Answer {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, surface.document.clone()).into_response()
}

/// Adds what every operation answers to what asks for too much, or is not understood.
pub(super) fn complete(mut document: OpenApi) -> OpenApi {
    let components = document.components.get_or_insert_default();
    let schemas = [("Problem".to_owned(), RefOr::T(Schema::Object(problem())))];
    components.schemas.extend(schemas);
    for (status, about) in PROBLEMS {
        let response = RefOr::T(problem_of(about));
        components.responses.insert(name_of(status), response);
    }
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The token of `listen.admin_token`."))
        .build();
    components.add_security_scheme(TOKEN, SecurityScheme::Http(token));
    let none: [&str; 0] = [];
    document.security = Some(vec![
        SecurityRequirement::new(TOKEN, none),
        SecurityRequirement::default(),
    ]);
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            add_problems(operation);
        }
    }
    document
}

/// Statuses, and what each means.
const PROBLEMS: [(u16, &str); 12] = [
    (
        400,
        "A parameter or the body is not understood: `detail` names it, and what would be right.",
    ),
    (401, "It shows no token, or not this one."),
    (
        403,
        "No token is configured, and the request comes from elsewhere or from another origin.",
    ),
    (404, "There is nothing of that id."),
    (408, "The body was too long in coming."),
    (
        409,
        "It is refused, since it can't be true: `detail` says why, `hint` what to do instead.",
    ),
    (413, "The body is too long."),
    (415, "The body is not `application/json`."),
    (421, "The Host header names a host that is not this one."),
    (
        422,
        "The body's JSON says something that makes no sense: `detail` names it.",
    ),
    (
        429,
        "Too many wrong tokens came from there; `Retry-After` says when to try again.",
    ),
    (503, "The database does not answer."),
];

fn add_problems(operation: &mut Operation) {
    let acts = operation.request_body.is_some();
    let parameters = operation.parameters.iter().flatten();
    let mut named = false;
    let mut asks = acts;
    for parameter in parameters {
        named |= matches!(parameter, RefOr::T(one) if one.parameter_in == ParameterIn::Path);
        asks = true;
    }
    for (status, _) in PROBLEMS {
        let answers = match status {
            400 => asks,
            404 => named,
            408 | 409 | 413 | 415 | 422 => acts,
            _ => true,
        };
        if answers {
            let link = Ref::from_response_name(name_of(status));
            operation
                .responses
                .responses
                .entry(status.to_string())
                .or_insert(RefOr::Ref(link));
        }
    }
}

fn name_of(status: u16) -> String {
    format!("Problem{status}")
}

fn problem_of(about: &str) -> Response {
    let schema = Ref::from_schema_name("Problem");
    ResponseBuilder::new()
        .description(about)
        .content("application/problem+json", Content::new(Some(schema)))
        .build()
}

/// As [`super::super::problem::Problem`] is written.
fn problem() -> Object {
    let text = |about: &str| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(about))
    };
    let status = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("The status of the answer."));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("What went wrong (RFC 9457)."))
        .property("status", status)
        .property("title", text("The status in words."))
        .property(
            "detail",
            text("What is wrong with this request, and what would be right."),
        )
        .property("hint", text("What to do instead."))
        .required("status")
        .required("title")
        .required("detail")
        .build()
}
