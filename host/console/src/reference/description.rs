//! The parts of an OpenAPI 3.1 description that the reference shows.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::markdown;

#[derive(Debug, Deserialize)]
pub(crate) struct ApiDescription {
    pub(crate) info: Info,
    pub(crate) paths: BTreeMap<String, BTreeMap<String, Operation>>,
    pub(crate) components: Components,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Info {
    pub(crate) title: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) request_body: Body,
    pub(crate) responses: BTreeMap<String, Body>,
}

/// A header of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) description: String,
}

/// A request body or a response.
#[derive(Debug, Deserialize)]
pub(crate) struct Body {
    pub(crate) description: String,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    content: BTreeMap<String, Content>,
}

#[derive(Debug, Deserialize)]
struct Content {
    example: Option<Value>,
    #[serde(default)]
    examples: BTreeMap<String, NamedExample>,
}

#[derive(Debug, Deserialize)]
struct NamedExample {
    value: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Components {
    pub(crate) security_schemes: BTreeMap<String, SecurityScheme>,
    pub(crate) headers: BTreeMap<String, Header>,
    pub(crate) schemas: BTreeMap<String, Schema>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SecurityScheme {
    pub(crate) description: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub(crate) description: String,
    pub(crate) schema: Schema,
}

/// A JSON schema in one of the forms that the description uses.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Schema {
    Reference {
        #[serde(rename = "$ref")]
        reference: String,
    },
    Codes {
        #[serde(rename = "oneOf")]
        one_of: Vec<ErrorCode>,
    },
    Reasons {
        #[serde(rename = "oneOf")]
        one_of: Vec<ErrorReason>,
    },
    Object {
        description: String,
        properties: BTreeMap<String, Schema>,
    },
    Constant {
        #[serde(rename = "const")]
        value: String,
    },
    Plain {
        #[serde(rename = "type")]
        kind: String,
        format: Option<String>,
        pattern: Option<String>,
        #[serde(default)]
        description: String,
    },
}

/// An error of the API (specification 7).
#[derive(Debug, Deserialize)]
pub struct ErrorCode {
    /// The code in the error body, such as `invalid_email`.
    #[serde(rename = "const")]
    pub code: String,
    /// The code in words.
    pub title: String,
    /// The HTTP status.
    #[serde(rename = "x-status")]
    pub status: u16,
    /// The meaning of the error, in Markdown.
    pub description: String,
    /// The advice for the client, in Markdown.
    #[serde(rename = "x-action")]
    pub action: String,
}

/// A value of the header `Error-Reason`.
#[derive(Debug, Deserialize)]
pub(crate) struct ErrorReason {
    #[serde(rename = "const")]
    pub(crate) token: String,
    /// The code of its error.
    #[serde(rename = "x-error")]
    code: String,
    /// The meaning, in Markdown.
    pub(crate) description: String,
}

impl ApiDescription {
    /// Returns the reasons of an error.
    pub(crate) fn reasons<'a>(&'a self, error: &'a ErrorCode) -> impl Iterator<Item = &'a ErrorReason> {
        let reasons = match self.components.schemas.get("ErrorReason") {
            Some(Schema::Reasons { one_of }) => &one_of[..],
            _ => &[],
        };
        reasons.iter().filter(|reason| reason.code == error.code)
    }
}

impl ErrorCode {
    /// Returns what the client should do, as HTML without a paragraph.
    pub fn action_html(&self) -> String {
        markdown::inline(&self.action)
    }

    /// Returns the path of the error's page, relative to the directory of the reference.
    pub fn path(&self) -> String {
        format!("errors/{}.html", self.code)
    }
}

impl Body {
    /// Returns the examples as formatted JSON.
    pub(crate) fn examples(&self) -> Vec<String> {
        let contents = self.content.values();
        let values = contents.flat_map(|content| {
            content.example.iter().chain(content.examples.values().map(|example| &example.value))
        });
        values.map(|value| format!("{value:#}")).collect()
    }

    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.keys().map(String::as_str)
    }
}

impl Schema {
    /// Returns the description of this schema itself, in Markdown.
    pub(crate) fn description(&self) -> &str {
        match self {
            Self::Object { description, .. } | Self::Plain { description, .. } => description,
            Self::Reference { .. } | Self::Codes { .. } | Self::Reasons { .. } | Self::Constant { .. } => "",
        }
    }

    /// Returns the name of the schema that this one refers to.
    pub(crate) fn target(&self) -> Option<&str> {
        match self {
            Self::Reference { reference } => reference.rsplit('/').next(),
            _ => None,
        }
    }

    /// Returns the type in Markdown.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Constant { value } => format!("always `{value}`"),
            Self::Object { .. } => "object".to_owned(),
            Self::Plain { kind, format: Some(format), .. } => format!("{kind} ({format})"),
            Self::Plain { kind, pattern: Some(pattern), .. } => format!("{kind}, `{pattern}`"),
            Self::Plain { kind, .. } => kind.clone(),
            Self::Reference { .. } | Self::Codes { .. } | Self::Reasons { .. } => String::new(),
        }
    }

    pub(crate) fn properties(&self) -> impl Iterator<Item = (&String, &Schema)> {
        let properties = match self {
            Self::Object { properties, .. } => Some(properties),
            _ => None,
        };
        properties.into_iter().flatten()
    }
}
