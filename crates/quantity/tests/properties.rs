//! Properties of parsing, printing and arithmetic over random quantities.

use proptest::prelude::*;
use sluice_quantity::{Amount, Format, Quantity, amount_of, quantity_of};

const SUFFIXES: [&str; 16] =
    ["n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn text() -> impl Strategy<Value = String> {
    let suffix = prop_oneof![
        proptest::sample::select(&SUFFIXES[..]).prop_map(str::to_owned),
        (-40i32..40).prop_map(|power| format!("e{power}")),
    ];
    ("[+-]?", "[0-9]{1,24}", "(\\.[0-9]{0,24})?", suffix).prop_map(|(s, w, f, x)| format!("{s}{w}{f}{x}"))
}

fn quantity() -> impl Strategy<Value = Quantity> {
    text().prop_map(|text| Quantity::parse(&text).expect("generated well-formed"))
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused_without_panic(text in "\\PC{0,40}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert_eq!(Quantity::parse(&quantity.to_string()).unwrap(), quantity);
        }
    }

    #[test]
    fn the_canonical_form_reads_back_equal_and_is_stable(quantity in quantity()) {
        let canonical = quantity.to_string();
        let again = Quantity::parse(&canonical).unwrap();
        prop_assert_eq!(again, quantity);
        prop_assert_eq!(again.to_string(), canonical.clone());
        prop_assert!(!canonical.contains('.'));
    }

    #[test]
    fn rounding_is_away_from_zero_by_less_than_one(quantity in quantity()) {
        for (rounded, unit) in [(quantity.value(), 1_000_000_000), (quantity.milli_value(), 1_000_000)] {
            if rounded == i64::MAX || rounded == i64::MIN {
                continue;
            }
            let excess = i128::from(rounded) * unit - quantity.nano();
            prop_assert!(excess.abs() < unit);
            prop_assert!(excess == 0 || (excess > 0) == (quantity.nano() > 0));
        }
    }

    #[test]
    fn the_parser_agrees_with_exact_integers(whole in 0u64.., fraction in 0u32..1_000_000_000, power in 0u32..7) {
        let text = format!("{whole}.{fraction:09}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power as usize]);
        let exact = (i128::from(whole) * 1_000_000_000 + i128::from(fraction)).saturating_mul(1 << (10 * power));
        let exact = if power == 0 { exact } else { exact.min(i128::from(i64::MAX) * 1_000_000_000) };
        prop_assert_eq!(Quantity::parse(&text).unwrap().nano(), exact);
    }

    #[test]
    fn addition_commutes_and_subtraction_inverts_it(a in any::<i64>(), b in any::<i64>()) {
        let (a, b) = (Quantity::from_milli(a, Format::DecimalSi), Quantity::from_units(b, Format::BinarySi));
        prop_assert_eq!(a.saturating_add(b), b.saturating_add(a));
        prop_assert_eq!(a.saturating_add(b).saturating_sub(b), a);
    }

    #[test]
    fn a_product_is_the_repeated_sum(milli in any::<i32>(), times in 0i64..20) {
        let one = Quantity::from_milli(i64::from(milli), Format::DecimalSi);
        let sum = (0..times).fold(Quantity::ZERO, |sum, _| sum.saturating_add(one));
        prop_assert_eq!(one.saturating_mul(times), sum);
    }

    #[test]
    fn amounts_survive_printing(units in any::<i64>()) {
        for resource in ["memory", "example.com/gpu"] {
            let printed = quantity_of(resource, Amount(units)).to_string();
            prop_assert_eq!(amount_of(resource, &Quantity::parse(&printed).unwrap()), Amount(units));
        }
        let printed = quantity_of("cpu", Amount(units)).to_string();
        let back = amount_of("cpu", &Quantity::parse(&printed).unwrap());
        prop_assert_eq!(back, if units >= i64::MAX / 1000 * 1000 { Amount::UNLIMITED } else { Amount(units) });
    }
}
