//! Requests that are almost right. A mutation changes one thing of a sample: a value, a key, a byte, a segment, a header.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::samples::Sample;
use crate::wire::Request;

/// Numbers at the edges of the types that programs keep them in.
pub(crate) const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "0.1",
    "1e-320",
];

/// Texts that often break parsers, file systems, logs and databases.
const TEXTS: [&str; 16] = [
    "",
    " ",
    "\u{0}",
    "a\u{0}b",
    "\r\nX-Injected: yes",
    "\u{1b}[2J",
    "../../etc/passwd",
    "'; DROP TABLE runs; --",
    "%s%n%00",
    "\u{202e}reversed",
    "\u{feff}marked",
    "😀👩‍👩‍👧‍👦",
    "\u{fffd}\u{ffff}",
    "null",
    "9223372036854775808",
    "2026-02-30T25:61:61Z",
];

/// How deep a nested value is; beyond what the parser accepts.
const DEPTH: usize = 200;

/// Bytes of a text that is longer than any name may be and shorter than any payload.
const LONG_TEXT_BYTES: usize = 70_000;

/// A mutated form of the sample.
pub(crate) fn mutated(sample: &Sample, random: &mut StdRng) -> Request {
    let mut request = sample.request();
    match random.random_range(0..100) {
        0..55 if sample.body.is_some() => {
            let mut body = sample.body.clone().unwrap_or_default();
            change_value(&mut body, random);
            let text = with_raw_numbers(&body, random);
            request.body = Some(text.into_bytes());
        }
        0..65 if sample.body.is_some() => change_bytes(&mut request, random),
        0..80 => change_target(&mut request, random),
        80..93 => change_headers(&mut request, random),
        93..97 => change_method(&mut request, random),
        _ => {}
    }
    request
}

/// Changes one node of the tree.
fn change_value(value: &mut Value, random: &mut StdRng) {
    let nodes = count(value);
    let mut at = random.random_range(0..nodes);
    change_nth(value, &mut at, random);
}

pub(crate) fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn change_nth(value: &mut Value, at: &mut usize, random: &mut StdRng) {
    if *at == 0 {
        *at = usize::MAX;
        change(value, random);
        return;
    }
    *at -= 1;
    let mut visit = |child: &mut Value| {
        if *at != usize::MAX {
            change_nth(child, at, random);
        }
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(&mut visit),
        Value::Object(fields) => fields.values_mut().for_each(&mut visit),
        _ => {}
    }
}

fn change(value: &mut Value, random: &mut StdRng) {
    let kind = random.random_range(0..12);
    match (kind, &mut *value) {
        (0, Value::Object(fields)) if !fields.is_empty() => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = keys.choose(random).expect("a key");
            fields.remove(key);
        }
        (1, Value::Object(fields)) => {
            fields.insert(text(random), any(random));
        }
        (2, Value::Object(fields)) if fields.len() > 1 => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let (one, other) = (keys.choose(random), keys.choose(random));
            let moved = fields[one.expect("a key")].clone();
            fields.insert(other.expect("a key").clone(), moved);
        }
        (3, Value::Array(items)) if !items.is_empty() => {
            let item = items.choose(random).expect("an item").clone();
            let copies = *[2_usize, 50, 1500].choose(random).expect("a number");
            items.extend(std::iter::repeat_n(item, copies));
        }
        (4, Value::Array(items)) => items.clear(),
        _ => *value = any(random),
    }
}

fn any(random: &mut StdRng) -> Value {
    match random.random_range(0..10) {
        0 => Value::Null,
        1 => json!(random.random::<bool>()),
        // Put in as text: not all of them are numbers of this library.
        2..5 => json!(format!(
            "{RAW_NUMBER}{}",
            NUMBERS.choose(random).expect("a number")
        )),
        5 => json!([]),
        6 => json!({}),
        7 => nested(),
        8 => json!("x".repeat(LONG_TEXT_BYTES)),
        _ => json!(text(random)),
    }
}

fn nested() -> Value {
    (0..DEPTH).fold(json!(1), |inner, _| json!([inner]))
}

fn text(random: &mut StdRng) -> String {
    (*TEXTS.choose(random).expect("a text")).to_owned()
}

/// Marks a text that is written as a number.
const RAW_NUMBER: &str = "raw number ";

fn with_raw_numbers(body: &Value, random: &mut StdRng) -> String {
    let mut text = body.to_string();
    for number in NUMBERS {
        text = text.replace(&format!("\"{RAW_NUMBER}{number}\""), number);
    }
    // A duplicate key: the server may use the last, use the first or refuse, but never use both.
    if random.random_range(0..20) == 0 && text.starts_with('{') && text.len() > 2 {
        let inner = text[1..text.len() - 1].to_owned();
        text = format!("{{{inner},{inner}}}");
    }
    text
}

fn change_bytes(request: &mut Request, random: &mut StdRng) {
    let Some(body) = &mut request.body else {
        return;
    };
    let at = random.random_range(0..=body.len());
    match random.random_range(0..6) {
        0 => body.truncate(at),
        1 => body.insert(at, 0xff),
        2 => body.insert(at, random.random()),
        3 => body.clear(),
        4 => body.extend_from_within(..),
        _ => {
            if let Some(byte) = body.get_mut(at) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
    }
}

fn change_target(request: &mut Request, random: &mut StdRng) {
    const SEGMENTS: [&str; 12] = [
        "",
        "..",
        ".",
        "%00",
        "%ff%fe",
        "%2e%2e%2f",
        "%",
        "%zz",
        "a%2Fb",
        "%F0%9F%98%80",
        "*",
        "{id}",
    ];
    const QUERIES: [&str; 12] = [
        "page_size=0",
        "page_size=-1",
        "page_size=18446744073709551616",
        "page_size=1e9",
        "next_page_token=AAAA",
        "next_page_token=%ff",
        "query=%28%28%28%28",
        "query=WorkflowType%20%3D%20%27",
        "status=%00",
        "namespace=%f0",
        "wait_new_event=true&timeout_seconds=0",
        "a=b&a=c&=&&&%",
    ];
    let (path, query) = match request.target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (request.target.clone(), None),
    };
    if random.random_range(0..3) == 0 {
        let added = QUERIES.choose(random).expect("a query");
        let kept = query.map(|query| format!("{query}&")).unwrap_or_default();
        request.target = format!("{path}?{kept}{added}");
        return;
    }
    let mut segments: Vec<String> = path.split('/').map(str::to_owned).collect();
    // Mostly ids: the segments before them only select another route.
    let first = if random.random_range(0..5) == 0 { 1 } else { 3 };
    let at = random.random_range(first.min(segments.len() - 1)..segments.len());
    segments[at] = match random.random_range(0..4) {
        0 => "x".repeat(random.random_range(1..9000)),
        1 => format!("{}%20", segments[at]),
        _ => (*SEGMENTS.choose(random).expect("a segment")).to_owned(),
    };
    request.target = segments.join("/");
    if let Some(query) = query {
        request.target = format!("{}?{query}", request.target);
    }
}

fn change_headers(request: &mut Request, random: &mut StdRng) {
    const VALUES: [&[u8]; 10] = [
        b"",
        b"0",
        b"2",
        b"1.99",
        b"99999999999999999999",
        b"\xff\xfe",
        b"a\tb",
        b"application/xml",
        b"gzip",
        b"chunked",
    ];
    const NAMES: [&str; 12] = [
        "X-Durable-Workflow-Protocol-Version",
        "X-Durable-Workflow-Control-Plane-Version",
        "X-Namespace",
        "Content-Type",
        "Accept-Encoding",
        "Authorization",
        "Content-Encoding",
        "X-Request-Id",
        "X-Forwarded-For",
        "If-None-Match",
        "Expect",
        "Cookie",
    ];
    match random.random_range(0..4) {
        0 if !request.headers.is_empty() => {
            let at = random.random_range(0..request.headers.len());
            request.headers.remove(at);
        }
        1 if !request.headers.is_empty() => {
            let at = random.random_range(0..request.headers.len());
            request.headers[at].1 = VALUES.choose(random).expect("a value").to_vec();
        }
        2 => {
            let name = (*NAMES.choose(random).expect("a name")).to_owned();
            request.headers.push((name, vec![b'x'; 9000]));
        }
        _ => {
            let name = (*NAMES.choose(random).expect("a name")).to_owned();
            let value = VALUES.choose(random).expect("a value").to_vec();
            request.headers.push((name, value));
        }
    }
}

fn change_method(request: &mut Request, random: &mut StdRng) {
    const METHODS: [&str; 8] = [
        "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW",
    ];
    request.method = (*METHODS.choose(random).expect("a method")).to_owned();
}
