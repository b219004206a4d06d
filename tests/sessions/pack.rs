//! Frames that no encoder of ours would write: any JSON value, in either subprotocol.

use laneway_client::wire::Subprotocol;
use serde_json::Value;

/// A value as a frame.
pub fn frame(subprotocol: Subprotocol, value: &Value) -> Vec<u8> {
    match subprotocol {
        Subprotocol::Json => value.to_string().into_bytes(),
        Subprotocol::MessagePack => {
            let mut out = Vec::new();
            pack(value, &mut out);
            out
        }
    }
}

fn pack(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(yes) => out.push(0xc2 + u8::from(*yes)),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => header(out, 0xcf, &number.to_be_bytes()),
            (None, Some(number)) => header(out, 0xd3, &number.to_be_bytes()),
            (None, None) => header(out, 0xcb, &number.as_f64().unwrap().to_be_bytes()),
        },
        Value::String(text) => {
            header(out, 0xdb, &(text.len() as u32).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Value::Array(items) => {
            header(out, 0xdd, &(items.len() as u32).to_be_bytes());
            items.iter().for_each(|item| pack(item, out));
        }
        Value::Object(members) => {
            header(out, 0xdf, &(members.len() as u32).to_be_bytes());
            for (name, member) in members {
                pack(&Value::String(name.clone()), out);
                pack(member, out);
            }
        }
    }
}

fn header(out: &mut Vec<u8>, kind: u8, rest: &[u8]) {
    out.push(kind);
    out.extend_from_slice(rest);
}
