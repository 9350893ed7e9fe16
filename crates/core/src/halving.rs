//! Search by halving, where it costs much to try whether some candidates are enough.

/// The lowest number that is enough, of those above `too_few` and up to `enough`. `is_enough` is called for numbers in between; if a number is enough,
/// so must be each higher one. Ends with the first error of `is_enough`.
pub(crate) fn lowest_enough<E>(
    mut too_few: usize,
    mut enough: usize,
    mut is_enough: impl FnMut(usize) -> Result<bool, E>,
) -> Result<usize, E> {
    while enough - too_few > 1 {
        let middle = usize::midpoint(too_few, enough);
        if is_enough(middle)? {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Ok(enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_is_found_with_few_questions() {
        for wanted in 1..=100 {
            let mut asked = Vec::new();
            let found = lowest_enough::<()>(0, 100, |number| {
                asked.push(number);
                Ok(number >= wanted)
            });
            assert_eq!(found, Ok(wanted));
            assert!(asked.len() <= 7 && asked[0] == 50, "{asked:?}");
        }
        assert_eq!(lowest_enough(3, 4, |_| Err(())), Ok(4), "no number is tried");
        assert_eq!(lowest_enough(3, 5, |_| Err("cut")), Err("cut"));
    }
}
