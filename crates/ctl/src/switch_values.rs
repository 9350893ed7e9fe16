//! Switches that take a value, as those of kubectl do: `--all`, `--all=true`, `--all=false`.

use clap::{Arg, ArgAction, Command};

/// Has every switch of a command line, and of its subcommands, take `=true` and `=false`.
#[must_use]
pub fn with_values(command: Command) -> Command {
    command.mut_args(with_value).mut_subcommands(with_values)
}

fn with_value(flag: Arg) -> Arg {
    if !matches!(flag.get_action(), ArgAction::SetTrue) {
        return flag;
    }
    let flag = flag.action(ArgAction::Set).value_parser(value).value_name("BOOL");
    // Only behind an equals sign: the next word is never a value.
    let flag = flag.num_args(0..=1).require_equals(true);
    flag.default_missing_value("true").default_value("false").hide_default_value(true)
}

/// The truth values that Go accepts.
fn value(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `-a/--all` and `-b/--both` are on, and the other words.
    fn read(line: &str) -> Option<(bool, bool, Vec<String>)> {
        let switch = |name: &'static str, short| {
            Arg::new(name).long(name).short(short).action(ArgAction::SetTrue).global(name == "both")
        };
        let words = Arg::new("words").num_args(0..);
        let below = Command::new("below").arg(switch("all", 'a')).arg(words);
        let command = with_values(Command::new("x").arg(switch("both", 'b')).subcommand(below));
        let matches = command.try_get_matches_from(line.split(' ')).ok()?;
        let below = matches.subcommand_matches("below")?;
        let words = below.get_many::<String>("words").into_iter().flatten().cloned().collect();
        Some((below.get_flag("all"), below.get_flag("both"), words))
    }

    #[test]
    fn switches_take_a_value_behind_an_equals_sign_alone() {
        let of =
            |all, both, words: &[&str]| Some((all, both, words.iter().map(ToString::to_string).collect()));
        assert_eq!(read("x below"), of(false, false, &[]));
        assert_eq!(read("x below --all true"), of(true, false, &["true"]));
        assert_eq!(read("x below --all=true a"), of(true, false, &["a"]));
        assert_eq!(read("x below --all=false --both=T"), of(false, true, &[]));
        assert_eq!(read("x --both below -a=1"), of(true, true, &[]));
        assert_eq!(read("x --both=0 below -ab"), of(true, true, &[]));
        assert_eq!(read("x --both=true below a"), of(false, true, &["a"]));
        assert_eq!(read("x below --all=maybe"), None);
    }
}
