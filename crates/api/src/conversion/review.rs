//! The conversion webhook's request and response.

use std::io::{self, Write};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::workload::Expanding;
use super::{Version, convert_root};

/// The most bytes that an answer may have. What is posted is at most a few MiB, and only topology assignments grow.
pub const MAX_ANSWER: usize = 24 << 20;

/// The request of the API server. (`kube` has this type, too, but reads it through a buffer, at half the speed.) It contains an empty response with
/// nulls, which is not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionReview {
    /// `apiextensions.k8s.io/v1`.
    #[serde(default)]
    pub api_version: String,
    /// `ConversionReview`.
    #[serde(default)]
    pub kind: String,
    /// The objects to convert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ConversionRequest>,
}

/// The objects to convert, and the version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionRequest {
    /// Names the request.
    pub uid: String,
    /// The `apiVersion` to convert to.
    #[serde(rename = "desiredAPIVersion")]
    pub desired_api_version: String,
    /// The objects, of one kind or several.
    #[serde(default)]
    pub objects: Vec<Value>,
}

/// The answer to the API server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Response<'a>,
}

/// The result: all objects in their order, or none.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    converted_objects: &'a [Converted],
    result: Status,
}

#[derive(Serialize)]
struct Status {
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

struct Converted {
    object: Value,
    /// Its topology assignments are expanded while it is written.
    compressed: bool,
}

impl Serialize for Converted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.compressed {
            Expanding::new(&self.object).serialize(serializer)
        } else {
            self.object.serialize(serializer)
        }
    }
}

/// Answers the API server, in JSON. If one object cannot be converted the whole request fails, as the protocol demands; the message names the object.
///
/// # Errors
///
/// If the answer cannot be written as JSON. An object that cannot be converted is not an error here: the answer reports it.
pub fn answer_review(review: ConversionReview) -> Result<Vec<u8>, serde_json::Error> {
    let ConversionReview { api_version, kind, request } = review;
    let (uid, outcome) = match request {
        Some(ConversionRequest { uid, desired_api_version, objects }) => {
            (uid, convert_all(objects, &desired_api_version))
        }
        None => (String::new(), Err("the review has no request".to_owned())),
    };
    let write = |objects: &[Converted], status, message| {
        let result = Status { status, message };
        let response = Response { uid: &uid, converted_objects: objects, result };
        let mut out = Bounded { bytes: Vec::new(), full: false };
        let written =
            serde_json::to_writer(&mut out, &Answer { api_version: &api_version, kind: &kind, response });
        (written.map(|()| out.bytes), out.full)
    };
    let message = match outcome {
        Ok(objects) => match write(&objects, "Success", String::new()) {
            (_, true) => format!("the converted objects are larger than {} MiB", MAX_ANSWER >> 20),
            (written, false) => return written,
        },
        Err(message) => message,
    };
    write(&[], "Failure", message).0
}

fn convert_all(objects: Vec<Value>, to: &str) -> Result<Vec<Converted>, String> {
    let version = Version::parse(to).ok_or_else(|| format!("cannot convert to {to:?}"))?;
    let convert_one = |(index, mut object)| match convert_root(&mut object, version, true) {
        Ok(compressed) => Ok(Converted { object, compressed }),
        Err(error) => Err(format!("cannot convert {} to {version}: {error}", describe(&object, index))),
    };
    objects.into_iter().enumerate().map(convert_one).collect()
}

/// Bytes, not more than [`MAX_ANSWER`] of them.
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_ANSWER {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Kind, namespace and name, as far as the object has them.
fn describe(object: &Value, index: usize) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    match (text("/metadata/namespace"), text("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        _ => format!("{kind} number {index} of the request"),
    }
}
