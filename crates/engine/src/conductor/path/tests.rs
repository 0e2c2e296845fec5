use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::conductor::{Budget, Limit};

fn document() -> Value {
    json!({
        "items": [
            {"id": 1, "name": "a", "price": 5, "tags": ["x", "y"]},
            {"id": 2, "name": "b", "price": 7.5},
            {"id": 3, "name": "Big", "price": 10, "isbn": null},
        ],
        "a b": {"c.d": 1, "e": 2},
        "text": "héllo",
        "n": 3,
        "none": null,
        "nested": {"id": 9, "list": [[1, 2], [3]]},
    })
}

fn find_in(path: &str, value: &Value) -> Result<Value, Limit> {
    let (_, steps) = Path::parse(path).unwrap().into_parts();
    let mut budget = Budget::default();
    steps.find(value, &mut budget)?.copy(&mut budget, 0)
}

#[track_caller]
fn check(path: &str, expected: Value) {
    assert_eq!(
        find_in(&format!("root{path}"), &document()).unwrap(),
        expected,
        "{path}"
    );
}

#[test]
fn names_and_indexes_find_one_value_or_null() {
    check("", document());
    check(".n", json!(3));
    check(".none", json!(null));
    check(".missing", json!(null));
    check(".missing.deeper[3]", json!(null));
    check("['a b']['c.d']", json!(1));
    check("[\"a b\"].e", json!(2));
    check(".a b.e", json!(2));
    check(".items[0].name", json!("a"));
    check(".items[-1].id", json!(3));
    check(".items[-4]", json!(null));
    check(".items[99]", json!(null));
    check(".items.name", json!(null));
    check(".n.x", json!(null));
    check(".items[ 1 ].id", json!(2));
}

#[test]
fn other_paths_find_a_list() {
    check(".items[*].id", json!([1, 2, 3]));
    check(".items.*.id", json!([1, 2, 3]));
    check(".items[0,2].id", json!([1, 3]));
    check(".items[0:2].id", json!([1, 2]));
    check(".items[:2].id", json!([1, 2]));
    check(".items[-2:].id", json!([2, 3]));
    check(".items[::2].id", json!([1, 3]));
    check(".items[5:9]", json!([]));
    check(".items[2:1]", json!([]));
    check("..id", json!([1, 2, 3, 9]));
    check("..missing", json!([]));
    check(".missing[*]", json!([]));
    check(".nested.list[*][0]", json!([1, 3]));
    check("..list[0]", json!([[1, 2]]));
    check("..['id']", json!([1, 2, 3, 9]));
    check(
        ".items[*]['id','name']",
        json!([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "Big"}]),
    );
    check(".nested['id','x']", json!({"id": 9}));
    check("['nested','a b'].id", json!([9]));
    check(".nested.*", json!([9, [[1, 2], [3]]]));
}

#[test]
fn filters_select_elements() {
    for (filter, ids) in [
        ("@.price > 5", json!([2, 3])),
        ("@.price >= 5 && @.price < 10", json!([1, 2])),
        ("@.price <= 5 || @.name == 'Big'", json!([1, 3])),
        ("@.id != 2", json!([1, 3])),
        ("@.id == '2'", json!([2])),
        ("@.isbn", json!([3])),
        ("!@.isbn", json!([1, 2])),
        ("!(@.isbn || @.id == 1)", json!([2])),
        ("@.missing != 1", json!([1, 2, 3])),
        ("@.missing == null", json!([])),
        ("@.isbn == null", json!([3])),
        ("@['name'] =~ /b.*/i", json!([2, 3])),
        ("@.name =~ /b/", json!([2])),
        ("@.id =~ /1/", json!([])),
        (r"@.name =~ /\w+/", json!([1, 2, 3])),
        (r"@.name =~ /\p{Lu}.*/", json!([3])),
        ("@.name =~ /(/", json!([])),
        ("@.name =~ /(a{1000}){1000}/", json!([])),
        ("@.name in ['a', 'Big']", json!([1, 3])),
        ("@.name nin ['a', \"b\"]", json!([3])),
        ("@.id in [1.0, 3]", json!([1, 3])),
        ("'x' in @.tags", json!([1])),
        ("@.tags.length() == 2", json!([1])),
        ("@.tags[?(@ == 'y')]", json!([1])),
        ("@.id > $.items[0].id", json!([2, 3])),
        ("@.name > 'Z'", json!([1, 2])),
        ("@.name > 5", json!([])),
        ("true", json!([1, 2, 3])),
    ] {
        check(&format!(".items[?({filter})].id"), ids);
    }
    check("..[?(@.id > 2)].id", json!([3, 9]));
    check(".items[?(@ == $.items[1])].id", json!([2]));
    check(".items[?(@.tags == $.items[0].tags)].id", json!([1]));
    check(".nested..[?(@ > 2)]", json!([9, 3]));
    check(".nested[?(@.id == 9)].id", json!([9]));
    check(".nested[?(@.id == 8)].id", json!([]));
}

#[test]
fn functions_make_one_value() {
    check(".items.length()", json!(3));
    check(".items.size()", json!(3));
    check(".items[*].length()", json!(3));
    check(".text.length()", json!(5));
    check(".nested.length()", json!(2));
    check(".n.length()", json!(null));
    check(".missing.length()", json!(null));
    check(".items[*].id.sum()", json!(6));
    check("..price.sum()", json!(22.5));
    check("..price.avg()", json!(7.5));
    check("..price.max()", json!(10));
    check("..price.min()", json!(5));
    check("..missing.max()", json!(null));
    check("..missing.avg()", json!(null));
    check(".nested.keys()", json!(["id", "list"]));
    check(".items[*].id.first()", json!(1));
    check(".items[*].id.last()", json!(3));
}

#[test]
fn text_that_is_no_path_is_refused() {
    for text in [
        "",
        " ",
        ".a",
        "a.",
        "a..",
        "a[",
        "a[]",
        "a['x]",
        "a[1",
        "a[1:",
        "a[x]",
        "a[?]",
        "a[?(]",
        "a[?(@.b ==)]",
        "a[?(1)]",
        "a[?(@.b =~ 'x')]",
        "a[?(@.b == /x/)]",
        "a[?(@.b ~ 1)]",
        "a.unknown()",
        "a.length(1)",
        "a.first().b",
        "a]",
        "a)b",
        "a[::0]",
        "a[1:2:-1]",
        "a[99999999999999999999]",
        "a['x' 'y']",
        "a[?(@.b in [@.c])]",
    ] {
        assert!(Path::parse(text).is_err(), "{text:?}");
    }
    let long = "a".repeat(PATH_BYTES_MAX + 1);
    assert!(Path::parse(&long).is_err());
    let deep = format!("a[?({}@.b{})]", "(".repeat(1000), ")".repeat(1000));
    assert!(Path::parse(&deep).is_err());
    let filters = format!("a{}", "[?(@.b".repeat(1000));
    assert!(Path::parse(&filters).is_err());
    let union = format!("a[{}1]", "1,".repeat(3000));
    assert!(Path::parse(&union).is_err());
}

#[test]
fn work_is_bounded() {
    let wide: Value = (0..1000).map(|n| json!([n, [n]])).collect();
    assert_eq!(find_in("a..*..*..*..*", &wide), Ok(json!([])));
    assert!(find_in("a..[*]..[*]..[?(@)]", &json!([[[[[[1]]]]]])).is_ok());
    let mut nested = json!([1, 2, 3]);
    for _ in 0..40 {
        nested = json!([nested, 1]);
    }
    assert_eq!(find_in("a..*..*..*..*..*..*", &nested), Err(Limit::Steps));
    let texts: Value = (0..100).map(|_| "ab".repeat(500)).collect();
    let slow = "a[?(@ =~ /(?:a|b)*a(?:a|b){300}/)]";
    assert_eq!(find_in(slow, &texts), Err(Limit::Steps));
    let large: Value = (0..1000).map(Value::from).collect();
    let equal = json!({"list": large.clone(), "a": large.clone(), "b": large});
    assert_eq!(find_in("a.list[?($.a == $.b)]", &equal), Err(Limit::Steps));
    let square: Value = (0..2000).map(Value::from).collect();
    let filter = "a[?(@ in $)]";
    assert_eq!(find_in(filter, &square), Err(Limit::Steps));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,60}") {
        let _ = Path::parse(&text);
    }

    #[test]
    fn no_likely_path_panics(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", ".", "..", "[", "]", "*", "?", "(", ")", "@", "$", "'", "\"", "1", "-1", ":", ",", "==", "<", "=~",
                "/a/", " in ", "&&", "||", "!", "length()", "[*]", "[?(", ")]", ".c", "é",
            ]),
            0..20,
        ),
        value in any_json(),
    ) {
        if let Ok(path) = Path::parse(&parts.concat()) {
            let (_, steps) = path.into_parts();
            let mut budget = Budget::new(10_000, 10_000);
            let _ = steps.find(&value, &mut budget);
        }
    }

    #[test]
    fn a_definite_path_agrees_with_a_pointer(value in any_json(), names in prop::collection::vec("[a-c]|[0-2]", 0..4)) {
        let mut path = "root".to_owned();
        let mut pointer = String::new();
        for name in &names {
            let quoted = if name.as_bytes()[0].is_ascii_digit() { format!("[{name}]") } else { format!(".{name}") };
            path.push_str(&quoted);
            pointer.push('/');
            pointer.push_str(name);
        }
        let expected = value.pointer(&pointer).cloned().unwrap_or(Value::Null);
        prop_assert_eq!(find_in(&path, &value), Ok(expected));
    }
}
