//! Golden vectors: what Kubernetes reads, prints and rounds.

use sluice_quantity::{Amount, Format, Quantity, QuantityError, amount_of, quantity_of};

fn q(text: &str) -> Quantity {
    Quantity::parse(text).expect("a well-formed quantity")
}

/// Text as written, canonical form, `value()`, `milli_value()`.
const VECTORS: &[(&str, &str, i64, i64)] = &[
    ("0", "0", 0, 0),
    ("-0", "0", 0, 0),
    ("0Ki", "0", 0, 0),
    ("0.0e9", "0", 0, 0),
    ("000", "0", 0, 0),
    ("1", "1", 1, 1000),
    ("+1", "1", 1, 1000),
    ("007", "7", 7, 7000),
    ("1.", "1", 1, 1000),
    (".5", "500m", 1, 500),
    ("-.5", "-500m", -1, -500),
    ("0.5", "500m", 1, 500),
    ("100m", "100m", 1, 100),
    ("1000m", "1", 1, 1000),
    ("1500m", "1500m", 2, 1500),
    ("0.001", "1m", 1, 1),
    ("0.0001", "100u", 1, 1),
    ("1u", "1u", 1, 1),
    ("1n", "1n", 1, 1),
    ("0.1n", "1n", 1, 1),
    ("-0.1n", "-1n", -1, -1),
    ("1.0000000001", "1000000001n", 2, 1001),
    ("1234567890n", "1234567890n", 2, 1235),
    ("1k", "1k", 1000, 1_000_000),
    ("0.001k", "1", 1, 1000),
    ("1000k", "1M", 1_000_000, 1_000_000_000),
    ("1001k", "1001k", 1_001_000, 1_001_000_000),
    ("1.5G", "1500M", 1_500_000_000, 1_500_000_000_000),
    ("3T", "3T", 3_000_000_000_000, 3_000_000_000_000_000),
    ("3P", "3P", 3_000_000_000_000_000, 3_000_000_000_000_000_000),
    ("9E", "9E", 9_000_000_000_000_000_000, i64::MAX),
    ("10E", "10E", i64::MAX, i64::MAX),
    ("1000E", "1000E", i64::MAX, i64::MAX),
    ("-10E", "-10E", i64::MIN, i64::MIN),
    ("1Ki", "1Ki", 1024, 1_024_000),
    ("1024Ki", "1Mi", 1 << 20, 1_048_576_000),
    ("1025Ki", "1025Ki", 1_049_600, 1_049_600_000),
    ("1000Ki", "1000Ki", 1_024_000, 1_024_000_000),
    ("-1Ki", "-1Ki", -1024, -1_024_000),
    ("0.5Ki", "512", 512, 512_000),
    ("0.1Ki", "102400m", 103, 102_400),
    ("0.0001Ki", "102400u", 1, 103),
    ("0.1Mi", "104857600m", 104_858, 104_857_600),
    ("1.5Gi", "1536Mi", 1_610_612_736, 1_610_612_736_000),
    ("1Ti", "1Ti", 1 << 40, 1_099_511_627_776_000),
    ("7Pi", "7Pi", 7 << 50, 7_881_299_347_898_368_000),
    ("7Ei", "7Ei", 7 << 60, i64::MAX),
    ("8Ei", "9223372036854775807", i64::MAX, i64::MAX),
    ("-8Ei", "-9223372036854775807", -i64::MAX, i64::MIN),
    ("1e3", "1e3", 1000, 1_000_000),
    ("1E3", "1e3", 1000, 1_000_000),
    ("1e+3", "1e3", 1000, 1_000_000),
    ("1E", "1E", 1_000_000_000_000_000_000, i64::MAX),
    ("100e-3", "100e-3", 1, 100),
    ("1e-1", "100e-3", 1, 100),
    ("1.1e3", "1100", 1100, 1_100_000),
    ("12e4", "120e3", 120_000, 120_000_000),
    ("1e0", "1", 1, 1000),
    ("1e-9", "1e-9", 1, 1),
    ("1e-400", "1e-9", 1, 1),
    ("1e-9223372036854775807", "1e-9", 1, 1),
    ("0e9223372036854775807", "0", 0, 0),
    ("1e28", "10e27", i64::MAX, i64::MAX),
    ("1e400", "100e27", i64::MAX, i64::MAX),
    ("-1e9223372036854775807", "-100e27", i64::MIN, i64::MIN),
    ("9223372036854775807", "9223372036854775807", i64::MAX, i64::MAX),
    ("9223372036854775808", "9223372036854775808", i64::MAX, i64::MAX),
    ("-9223372036854775808", "-9223372036854775808", i64::MIN, i64::MIN),
    ("100000000000000000000000000001", "100000000000E", i64::MAX, i64::MAX),
];

#[test]
fn vectors_parse_print_and_round_as_kubernetes_does() {
    for (text, canonical, value, milli) in VECTORS {
        let quantity = q(text);
        assert_eq!(quantity.to_string(), *canonical, "canonical form of {text}");
        assert_eq!(quantity.value(), *value, "value of {text}");
        assert_eq!(quantity.milli_value(), *milli, "milli value of {text}");
        assert_eq!(q(canonical), quantity, "{canonical} reads back");
        assert_eq!(q(canonical).to_string(), *canonical, "{canonical} is stable");
    }
}

#[test]
fn hundreds_of_digits_stay_exact() {
    let zeros = "0".repeat(400);
    assert_eq!(q(&format!("{zeros}12{zeros}e-400")).to_string(), "12");
    assert_eq!(q(&format!("1.{zeros}1")).to_string(), "1000000001n");
    assert_eq!(q(&format!("0.{zeros}1e401")).to_string(), "1");
    assert_eq!(q(&format!("1.{zeros}Gi")).to_string(), "1Gi");
    assert_eq!(q(&format!("1.{zeros}1Gi")).nano(), (1i128 << 30) * 1_000_000_000 + 1);
    assert_eq!(q(&"9".repeat(400)), q("1e400"));
}

#[test]
fn texts_that_are_no_quantities_are_refused_with_a_reason() {
    assert_eq!(Quantity::parse(""), Err(QuantityError::Empty));
    for text in ["-", "+", ".", "-.", "m", "Ki", "e3", " 1", "--1", "+-1", "NaN", "٣"] {
        assert_eq!(Quantity::parse(text), Err(QuantityError::NoDigits(text.to_owned())), "{text}");
    }
    for text in [
        "1K",
        "1ki",
        "1Kib",
        "1mi",
        "1e",
        "1e+",
        "1e3.5",
        "1e 3",
        "1 ",
        "1 Ki",
        "1.1.1",
        "1x",
        "1kk",
        "1i",
        "1ee3",
        "1é",
        "1e99999999999999999999",
        "0x10",
        "1,5",
        "1_000",
        "1e+-3",
    ] {
        assert_eq!(Quantity::parse(text), Err(QuantityError::Suffix(text.to_owned())), "{text}");
    }
}

#[test]
fn comparison_ignores_the_format() {
    assert_eq!(q("1024"), q("1Ki"));
    assert_eq!(q("1000m"), q("1e0"));
    assert!(q("1k") < q("1Ki"));
    assert!(q("-1") < q("1n"));
    assert!(q("999999999n") < q("1"));
}

#[test]
fn sums_keep_the_left_format_unless_the_left_is_zero() {
    assert_eq!(q("1Ki").saturating_add(q("1k")).to_string(), "2024");
    assert_eq!(q("1Ki").saturating_add(q("1024")).to_string(), "2Ki");
    assert_eq!(q("1024").saturating_add(q("1Ki")).to_string(), "2048");
    assert_eq!(q("0").saturating_add(q("2048Ki")).to_string(), "2Mi");
    assert_eq!(q("0").saturating_sub(q("2048Ki")).to_string(), "-2Mi");
    assert_eq!(q("1e3").saturating_sub(q("1")).to_string(), "999");
    assert_eq!(q("1").saturating_sub(q("1500m")).to_string(), "-500m");
    assert_eq!(q("100m").saturating_mul(30).to_string(), "3");
    assert_eq!(q("1Mi").saturating_mul(-1024).to_string(), "-1Gi");
    assert_eq!(q("0.5Ki").saturating_add(q("0.5Ki")).to_string(), "1Ki");
    assert_eq!(q("0.5m").saturating_mul(2).to_string(), "1m");
}

#[test]
fn arithmetic_saturates_instead_of_overflowing() {
    let huge = q("1e400");
    assert_eq!(huge.saturating_add(huge), huge);
    assert_eq!(huge.saturating_mul(i64::MAX), huge);
    assert_eq!(huge.saturating_mul(i64::MIN), q("-1e400"));
    assert_eq!(q("-1e400").saturating_sub(huge), q("-1e400"));
}

#[test]
fn amounts_count_millicores_and_whole_units_rounded_up() {
    assert_eq!(amount_of("cpu", &q("1")), Amount(1000));
    assert_eq!(amount_of("cpu", &q("0.0001")), Amount(1));
    assert_eq!(amount_of("memory", &q("1.5Ki")), Amount(1536));
    assert_eq!(amount_of("memory", &q("100m")), Amount(1));
    assert_eq!(amount_of("nvidia.com/gpu", &q("3")), Amount(3));
    assert_eq!(amount_of("cpu", &q("-2")), Amount(-2000));
}

#[test]
fn cpu_beyond_sixty_four_bits_of_millicores_is_unlimited() {
    assert_eq!(amount_of("cpu", &q("9223372036854774999m")), Amount(9_223_372_036_854_774_999));
    assert_eq!(amount_of("cpu", &q("9223372036854775")), Amount::UNLIMITED);
    assert_eq!(amount_of("cpu", &q("1E")), Amount::UNLIMITED);
    assert_eq!(amount_of("memory", &q("1E")), Amount(1_000_000_000_000_000_000));
    assert_eq!(amount_of("memory", &q("8Ei")), Amount::UNLIMITED);
    assert_eq!(amount_of("cpu", &quantity_of("cpu", Amount::UNLIMITED)), Amount::UNLIMITED);
    assert_eq!(amount_of("pods", &quantity_of("pods", Amount::UNLIMITED)), Amount::UNLIMITED);
}

#[test]
fn amounts_print_in_the_format_of_their_resource() {
    assert_eq!(quantity_of("cpu", Amount(1500)).to_string(), "1500m");
    assert_eq!(quantity_of("cpu", Amount(2000)).to_string(), "2");
    assert_eq!(quantity_of("memory", Amount(1 << 30)).to_string(), "1Gi");
    assert_eq!(quantity_of("ephemeral-storage", Amount(2048)).to_string(), "2Ki");
    assert_eq!(quantity_of("hugepages-2Mi", Amount(4 << 20)).to_string(), "4Mi");
    assert_eq!(quantity_of("example.com/gpu", Amount(2048)).to_string(), "2048");
    assert_eq!(quantity_of("pods", Amount(3000)).to_string(), "3k");
    assert_eq!(quantity_of("memory", Amount(0)).to_string(), "0");
}

#[test]
fn display_honours_width() {
    assert_eq!(format!("{:>6}|{:<6}|", q("1Gi"), q("5m")), "   1Gi|5m    |");
}

#[test]
fn constructors_take_a_format() {
    assert_eq!(Quantity::from_units(4096, Format::BinarySi).to_string(), "4Ki");
    assert_eq!(Quantity::from_milli(250, Format::DecimalSi), q("0.25"));
    assert_eq!(Quantity::ZERO, q("0"));
    assert!(q("2").is_integer() && !q("2500m").is_integer());
    assert!(q("-1n").is_negative() && q("0").is_zero());
}
