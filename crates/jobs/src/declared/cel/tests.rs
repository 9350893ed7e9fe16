use serde_json::json;

use super::*;

fn value(source: &str, object: &Value) -> Result<Value, Failure> {
    Expression::compile(source).unwrap_or_else(|why| panic!("{source}: {why}")).value(object, &Budget::new())
}

#[test]
fn expressions_mean_what_they_mean_to_kubernetes() {
    let object = json!({
        "metadata": {"name": "x", "labels": {"a.b/c": "d"}},
        "spec": {"count": 3, "ratio": 0.5, "tasks": [{"n": 1, "name": "a"}, {"n": 2, "name": "b"}], "no": null},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "by": {"b": 2, "a": 1, "c": 3}},
    });
    for (source, wanted) in [
        ("self.spec.count", json!(3)),
        ("self.spec.count * 2 + 1", json!(7)),
        ("self.spec.ratio < 1.0", json!(true)),
        ("self.metadata.labels['a.b/c'] == 'd'", json!(true)),
        ("has(self.status.phase) && self.status.phase in ['Running', 'Done']", json!(true)),
        ("has(self.status.nothing)", json!(false)),
        ("self.spec.tasks[1].name + '!'", json!("b!")),
        ("self.spec.tasks.map(t, t.n)", json!([1, 2])),
        ("self.spec.tasks.filter(t, t.n > 1).map(t, t.name)", json!(["b"])),
        ("self.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", json!(true)),
        ("self.status.conditions.exists_one(c, has(c.reason))", json!(false)),
        ("self.status.by.map(k, k)", json!(["a", "b", "c"])),
        ("self.status.by.all(k, self.status.by[k] > 0)", json!(true)),
        ("self.spec.?count.orValue(1)", json!(3)),
        ("self.spec.?other.orValue(1)", json!(1)),
        ("self.?other.deep.orValue('none')", json!("none")),
        ("self.status.?other.hasValue()", json!(false)),
        ("self.spec.no == null", json!(true)),
        ("size(self.spec.tasks) == 2 && size(self.metadata.name) == 1", json!(true)),
        ("string(self.spec.count) + 'Gi'", json!("3Gi")),
        ("double(self.spec.count) / 2.0", json!(1.5)),
        ("int('7')", json!(7)),
        ("self.status.phase.matches('^Run')", json!(true)),
        ("self.status.phase.lowerAscii() + self.metadata.name.upperAscii()", json!("runningX")),
        ("' a b '.trim()", json!("a b")),
        ("'a,b,,c'.split(',')", json!(["a", "b", "", "c"])),
        ("'a,b,c'.split(',', 2)", json!(["a", "b,c"])),
        ("self.spec.tasks.map(t, t.name).join('-')", json!("a-b")),
        ("['a', 'b'].join()", json!("ab")),
        ("'tensor/parallel/x'.replace('/', '.')", json!("tensor.parallel.x")),
        ("'a/b/c'.replace('/', '.', 1)", json!("a.b/c")),
        ("self.status.phase.substring(3)", json!("ning")),
        ("self.status.phase.substring(0, 3) + 'äöü'.charAt(1)", json!("Runö")),
        ("'a/b/c'.indexOf('/')", json!(1)),
        ("'a/b/c'.lastIndexOf('/')", json!(3)),
        ("'abc'.indexOf('x')", json!(-1)),
        ("self.spec.tasks.map(t, t.n).sum()", json!(3)),
        ("[1, 2.5].sum()", json!(3.5)),
        ("[].sum()", json!(0)),
        ("self.spec.tasks.map(t, t.n).max() - [3, 1, 2].min()", json!(1)),
        ("[1.5, 0.5].max()", json!(1.5)),
        ("[1, 2, 2].isSorted() && ![2, 1].isSorted()", json!(true)),
        ("quantity('1500m').add(quantity('500m')).asInteger()", json!(2)),
        (
            "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('1').isLessThan(quantity('2'))",
            json!(true),
        ),
        ("quantity('1').compareTo(quantity('1000m')) + quantity('2').compareTo(quantity('1'))", json!(1)),
        (
            "quantity('1') == quantity('1000m') && quantity('1') != quantity('2') && quantity('1') != 1",
            json!(true),
        ),
        ("quantity('3').sub(1).sub(quantity('500m'))", json!("1500m")),
        ("{'cpu': quantity('1').add(1), 'memory': quantity('1Gi')}", json!({"cpu": "2", "memory": "1Gi"})),
        ("isQuantity('5Gi') && !isQuantity('5 apples')", json!(true)),
        (
            "quantity('-1').sign() == -1 && quantity('2').isInteger() && !quantity('2500m').isInteger()",
            json!(true),
        ),
        ("quantity('2500m').asApproximateFloat()", json!(2.5)),
        (
            "self.spec.tasks.map(t, quantity(string(t.n))).exists(q, q.isGreaterThan(quantity('1')))",
            json!(true),
        ),
        (
            "{'spec': {'containers': self.spec.tasks}}",
            json!({"spec": {"containers": [{"n": 1, "name": "a"}, {"n": 2, "name": "b"}]}}),
        ),
        ("self.spec.count == 3.0", json!(true)),
        ("self['spec']['count'] > 2 ? 'many' : 'few'", json!("many")),
        ("sets.contains([1, 2, 3], [3, 1, 1]) && !sets.contains([1], [1, 2])", json!(true)),
        (
            "sets.equivalent(['a', 'b'], self.spec.tasks.map(t, t.name)) && !sets.equivalent([1], [])",
            json!(true),
        ),
        ("sets.intersects(self.spec.tasks, [self.spec.tasks[1]]) || sets.intersects([1], [2])", json!(true)),
        ("sets.intersects([], [1]) || !sets.contains([], [])", json!(false)),
        ("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", json!(2)),
        ("['a', 'b'].indexOf('b') + ['a', 'b'].lastIndexOf('x')", json!(0)),
        ("self.spec.tasks.map(t, t.name).indexOf(self.spec.tasks[1].name)", json!(1)),
        ("'xäx-x'.indexOf(self.metadata.name) + 'xäx-x'.lastIndexOf(self.metadata.name)", json!(4)),
        ("'xäy'.indexOf(self.spec.tasks[0].name)", json!(-1)),
        ("'build 17 of 42'.find('[0-9]+') + 'none'.find('[0-9]+')", json!("17")),
        ("'build 17 of 42'.findAll('[0-9]+')", json!(["17", "42"])),
        (
            "'build 17 of 42'.findAll('[0-9]+', 1) + 'a'.findAll('b') + '1 2'.findAll('[0-9]', -1)",
            json!(["17", "1", "2"]),
        ),
        ("size(self) == 3", json!(true)),
        ("has(self.spec.absent.deep) || true", json!(true)),
    ] {
        assert_eq!(value(source, &object), Ok(wanted), "{source}");
    }
}

#[test]
fn times_mean_what_they_mean_to_cel() {
    let object = json!({"status": {"start": "2026-01-31T23:30:15.5Z", "end": "2026-02-01T01:00:15.5+00:00"}});
    for (source, wanted) in [
        ("timestamp(self.status.end) - timestamp(self.status.start) == duration('1h30m')", json!(true)),
        ("timestamp(self.status.start) + duration('90m') == timestamp(self.status.end)", json!(true)),
        ("duration('90m') + timestamp(self.status.start) <= timestamp(self.status.end)", json!(true)),
        ("timestamp(self.status.end) - duration('2h') < timestamp(self.status.start)", json!(true)),
        ("duration('1h') - duration('90m') + duration('0') < duration('-29m')", json!(true)),
        ("timestamp('2026-01-01T00:00:00+01:00') == timestamp('2025-12-31T23:00:00Z')", json!(true)),
        (
            "timestamp(1) == timestamp('1970-01-01T00:00:01Z') && timestamp(timestamp(1)) != timestamp(2)",
            json!(true),
        ),
        ("timestamp(1) == 1 || duration('1s') == timestamp(1)", json!(false)),
        ("timestamp('9999-12-31T23:59:59Z') > timestamp(self.status.end)", json!(true)),
        ("int(timestamp('1969-12-31T23:59:59.5Z'))", json!(-1)),
        (
            "string(timestamp(self.status.end)) + ' ' + string(duration('1m30s500ms'))",
            json!("2026-02-01T01:00:15.5Z 90.5s"),
        ),
        (
            "[timestamp(0), duration('-1500ms'), duration(duration('0'))]",
            json!(["1970-01-01T00:00:00Z", "-1.5s", "0s"]),
        ),
        ("duration('90m').getHours() * 1000 + duration('90m').getMinutes()", json!(1090)),
        ("duration('1.5s').getSeconds() * 10000 + duration('1.5s').getMilliseconds()", json!(11500)),
        ("timestamp(self.status.start).getFullYear()", json!(2026)),
        (
            "timestamp(self.status.start).getMonth() * 100 + timestamp(self.status.start).getMonth('+01:00')",
            json!(1),
        ),
        (
            "timestamp(self.status.start).getDate() * 100 + timestamp(self.status.start).getDayOfMonth()",
            json!(3130),
        ),
        (
            "timestamp(self.status.start).getDayOfYear() * 10 + timestamp(self.status.start).getDayOfWeek()",
            json!(306),
        ),
        (
            "timestamp(self.status.start).getHours('-08:00') * 100 + timestamp(self.status.start).getMinutes('05:30')",
            json!(1500),
        ),
        (
            "timestamp(self.status.start).getSeconds('UTC') * 1000 + timestamp(self.status.start).getMilliseconds()",
            json!(15500),
        ),
        ("[timestamp(2), timestamp(1)].indexOf(timestamp(1))", json!(1)),
        ("has(self.status.never) && timestamp(self.status.never) < timestamp(self.status.end)", json!(false)),
    ] {
        assert_eq!(value(source, &object), Ok(wanted), "{source}");
    }
    for source in [
        "timestamp('2026-01-31')",
        "timestamp('2026-01-31T23:30:15')",
        "timestamp('2026-01-31 23:30:15Z')",
        "timestamp('2026-01-31T23:30:15.Z')",
        "timestamp('2026-01-31T23:30:15Z[Europe/Berlin]')",
        "timestamp('2026-02-30T23:30:15Z')",
        "timestamp('0000-01-01T00:00:00Z')",
        "timestamp('äääääääääää')",
        "timestamp(true)",
        "timestamp(300000000000)",
        "timestamp('9999-12-31T23:59:59Z') + duration('1s')",
        "timestamp('0001-01-01T00:00:00Z') - duration('1ns')",
        "timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')",
        "timestamp(1) + timestamp(1)",
        "timestamp(1) + 1",
        "timestamp(1) < 1",
        "timestamp(1).getHours('Europe/Berlin')",
        "timestamp(1).getHours('24:00')",
        "timestamp(1).getHours('+-1:00')",
        "duration('1 hour')",
        "duration('1')",
        "duration('300000h') + duration('2540000h')",
        "duration('1h') - timestamp(1)",
        "duration('1h') > 60",
        "duration('1h').getDate()",
    ] {
        assert!(
            matches!(value(source, &object), Err(Failure::Wrong(_))),
            "{source}: {:?}",
            value(source, &object)
        );
    }
}

#[test]
fn what_is_missing_is_distinguished_from_what_is_wrong() {
    let object = json!({"status": {"phase": "x", "list": [{}]}});
    for (source, key) in [
        ("self.status.active > 0", "self.status.active"),
        ("self.spec.count", "self.spec.count"),
        ("self.status.list.all(x, x.name == '')", "name"),
    ] {
        assert_eq!(value(source, &object), Err(Failure::Absent(key.to_owned())), "{source}");
    }
    for source in [
        "self.status.phase > 1",
        "self.status.phase + 1",
        "1 / 0",
        "self.status.phase.all(x, true)",
        "[].max()",
        "['a'].sum()",
        "self.status.list.sum()",
        "[9223372036854775807, 1].sum()",
        "self.status.phase.sum()",
        "self.status.phase.substring(7)",
        "[1].join()",
        "quantity('5 apples')",
        "quantity(5)",
        "quantity('1500m').asInteger()",
        "quantity('1').add('1')",
        "self.status.phase.isLessThan(quantity('1'))",
        "quantity('1').compareTo(1)",
        "sets.contains('abc', ['a'])",
        "sets.intersects([1], 1)",
        "self.status.phase.indexOf(1)",
    ] {
        assert!(
            matches!(value(source, &object), Err(Failure::Wrong(_))),
            "{source}: {:?}",
            value(source, &object)
        );
    }
}

#[test]
fn a_mistake_is_found_when_it_is_compiled() {
    for (source, why) in [
        ("", "must have 1 to 1024 characters"),
        ("self.", "column"),
        ("status.phase == ''", "there is no variable \"status\""),
        ("self.phase.lower()", "there is no function \"lower\""),
        ("self.phase.format([1])", "there is no function \"format\""),
        ("now() > 1", "there is no function \"now\""),
        ("self.a.matches(self.b)", "the pattern of matches must be a string"),
        ("self.a.matches('(')", "the pattern of matches: "),
        ("self.a.matches('(a{100}){100}')", "the pattern of matches: "),
        ("self.a.indexOf(self.b, 2)", "the text to look for of indexOf must be a string"),
        ("self.a.find(self.b)", "the pattern of find must be a string"),
        ("self.a.findAll('(')", "the pattern of findAll: "),
        ("sets.union([1], [2])", "there is no"),
        ("sets.contains([1])", "there is no variable \"sets\""),
        ("sets", "there is no variable \"sets\""),
        ("self.sets.contains([1], [2]).x(1)", "there is no function \"x\""),
        ("self.a.replace('', 'x')", "must not be empty"),
        ("self.a.replace('x', self.b)", "the replacement of replace must be a string"),
        ("self.a.split(self.b)", "the separator of split must be a string"),
        ("self.a.join('                                 ')", "at most 32 characters"),
        ("self.list.map(self, self)", "cannot be called \"self\""),
        ("Thing{a: 1}", "a message cannot be made"),
    ] {
        let found = Expression::compile(source).unwrap_err();
        assert!(found.contains(why), "{source}: {found}");
    }
    let deep = format!("{}1{}", "(1 + ".repeat(60), ")".repeat(60));
    assert!(Expression::compile(&deep).is_err());
    assert!(Expression::compile(&"1+".repeat(511)).is_err());
}

/// What a hostile object may have any expression do.
#[test]
fn no_object_makes_an_expression_take_long() {
    let numbers: Vec<_> = (0..20_000).map(|n| json!({"n": n})).collect();
    let text = "a".repeat(1_000_000);
    let keyed: serde_json::Map<_, _> = (0..300).map(|n| (format!("key-{n}"), json!({"n": n}))).collect();
    let object = json!({"keyed": keyed, "list": numbers, "text": text, "few": vec![1; 300], "texts": vec!["b".repeat(1000); 300]});
    for source in [
        "self.list.all(a, self.list.all(b, self.list.all(c, a.n + b.n + c.n >= 0)))",
        "self.few.all(a, self.few.all(b, self.few.all(c, true)))",
        "self.few.exists(a, self.few.exists(b, self.few.exists(c, false)))",
        "self.keyed.exists(a, self.keyed.exists(b, self.keyed[a].n == self.keyed[b]))",
        "self.keyed.exists(a, self.keyed.map(k, k) == [])",
        "self.keyed.exists(a, self.keyed.map(k, self.keyed[k]) == [])",
        "self.list.exists(a, self == self)",
        "self.few.map(a, self.few).map(l, self.few.map(a, self.few)) == []",
        "[self.few, self.few].map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]) == []",
        "self.few.map(x, self.text + self.text) == []",
        "self.texts.exists(t, self.texts.exists(u, t.contains(u + 'c')))",
        "self.texts.exists(t, t.matches('(.*)*(.*)*c$'))",
        "self.text.matches('(a|aa)+$')",
        "self.few.filter(a, self.texts.filter(t, t in self.texts) == self.texts) == []",
        "self.few.map(x, {'a': self.texts, 'b': self.texts}) == []",
        "self.few.exists(a, self.few.exists(b, 1 / 0 == 1) || false)",
        "self.few.exists(a, self.text.indexOf('aaaaaaaaaaaaaaab') > 0)",
        "self.few.exists(a, self.text.lastIndexOf('baaaaaaaaaaaaaaa') > 0)",
        "self.text.replace('a', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb') == ''",
        "self.few.map(a, self.few).exists(a, a.exists(b, 'aaaaaaaaaaaaaaaa'.replace('a', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb') == ''))",
        "self.text.split('') == []",
        "self.texts.exists(t, self.texts.join('------------------------') == t)",
        "self.few.exists(a, self.few.exists(b, self.few.sum() == 0))",
        "self.texts.exists(t, self.texts.exists(u, u.substring(999) == 'c'))",
        "self.texts.exists(t, self.texts.exists(u, isQuantity(t + u)))",
        "self.list.exists(t, self.list.indexOf(t) < 0)",
        "self.texts.exists(t, self.texts.exists(u, t.indexOf(u) < 0))",
        "self.text.lastIndexOf(self.text + 'c') > 0",
        "sets.contains(self.list, self.list)",
        "sets.equivalent(self.texts + ['c'], self.texts + ['d'])",
        "self.few.exists(a, sets.intersects(self.few, [2, 3, 4, 5]))",
        "self.texts.exists(t, t.findAll('(a|b)').size() == 0)",
        "self.few.exists(a, self.few.exists(b, timestamp(a) + duration('1s') < timestamp(b)))",
        "self.few.exists(a, self.few.exists(b, quantity('1').add(quantity('2')).isLessThan(quantity('3'))))",
    ] {
        let expression = Expression::compile(source).unwrap_or_else(|why| panic!("{source}: {why}"));
        assert_eq!(expression.value(&object, &Budget::new()), Err(Failure::TooCostly), "{source}");
    }
}

#[test]
fn what_fits_the_budget_is_not_refused() {
    let pods: Vec<_> = (0..1000).map(|n| json!({"name": format!("pod-{n}"), "phase": "Running"})).collect();
    let object = json!({"status": {"pods": pods}});
    let source = "self.status.pods.filter(p, p.phase == 'Running').size() == self.status.pods.size()";
    let budget = Budget::new();
    assert_eq!(Expression::compile(source).unwrap().truth(&object, &budget), Ok(true));
    println!("{budget:?}");
}

#[test]
fn what_a_map_holds_is_paid_for_once() {
    let left = |text: usize, source: &str| {
        let held: serde_json::Map<_, _> =
            (0..100).map(|n| (format!("{n}"), json!("x".repeat(text)))).collect();
        let budget = Budget::new();
        Expression::compile(source).unwrap().value(&json!({"held": held}), &budget).unwrap();
        budget.left()
    };
    let each = 32 * 50;
    let cost = |source| left(0, source) - left(each, source);
    assert_eq!(cost("self.held.exists(k, k == '')"), 100 * 50);
    assert_eq!(cost("self.held == null"), 2 * 100 * 50, "a comparison goes through it once more");
}
