//! Paths into a wrapped object, in AppWrapper's form: `template.spec.replicatedJobs[0].template`.

use serde_json::Value;

use crate::patch::escape;

/// The value at a path, and its JSON pointer within the wrapped object; else what is wrong with the path.
pub(super) fn find<'a>(object: &'a Value, path: &str) -> Result<(&'a Value, String), String> {
    let wrong = |why: &str| format!("path {path:?}: {why}");
    let mut rest = path.strip_prefix("template").ok_or_else(|| wrong("does not begin with \"template\""))?;
    let (mut at, mut pointer) = (object, String::new());
    while !rest.is_empty() {
        let (found, key, after) = if let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']').ok_or_else(|| wrong("a bracket is not closed"))?;
            let number = index.parse::<usize>().map_err(|_| wrong(&format!("{index:?} is not an index")))?;
            (at.as_array().and_then(|list| list.get(number)), index, after)
        } else if let Some(inner) = rest.strip_prefix('.') {
            let end = inner.find(['.', '[']).unwrap_or(inner.len());
            let (key, after) = inner.split_at_checked(end).unwrap_or((inner, ""));
            (at.as_object().and_then(|map| map.get(key)), key, after)
        } else {
            return Err(wrong(&format!("cannot be read from {rest:?} on")));
        };
        at = found.ok_or_else(|| wrong(&format!("there is no {key:?}")))?;
        pointer.extend(["/", &escape(key)]);
        rest = after;
    }
    Ok((at, pointer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_to_a_value_and_its_pointer() {
        let object = json!({"spec": {"a/b": [{"c": 1}, {"c": 2}]}});
        assert_eq!(find(&object, "template"), Ok((&object, String::new())));
        let found = find(&object, "template.spec.a/b[1].c").unwrap();
        assert_eq!(found, (&json!(2), "/spec/a~1b/1/c".to_owned()));
        assert_eq!(object.pointer(&found.1), Some(found.0));
    }

    #[test]
    fn a_path_that_leads_nowhere_says_where_it_ends() {
        let object = json!({"spec": {"list": [1], "text": "x"}});
        let trouble = |path: &str| find(&object, path).unwrap_err();
        for (path, why) in [
            ("", "does not begin with \"template\""),
            ("spec", "does not begin with \"template\""),
            ("template.spec.none", "there is no \"none\""),
            ("template.spec.list[1]", "there is no \"1\""),
            ("template.spec.list[-1]", "\"-1\" is not an index"),
            ("template.spec.list[0", "a bracket is not closed"),
            ("template.spec.text.x", "there is no \"x\""),
            ("template.spec.", "there is no \"\""),
            ("templates", "cannot be read from \"s\" on"),
            ("template.spec.list[0]x", "cannot be read from \"x\" on"),
        ] {
            assert_eq!(trouble(path), format!("path {path:?}: {why}"));
        }
    }
}
