//! Covering arrays: a few rows that contain all combinations of levels for every three factors.

use std::collections::BTreeSet;

/// Three (factor, level) pairs, by factor.
type Triple = [(usize, usize); 3];

fn triples(levels: &[usize]) -> BTreeSet<Triple> {
    let mut all = BTreeSet::new();
    for a in 0..levels.len() {
        for b in a + 1..levels.len() {
            for c in b + 1..levels.len() {
                for x in 0..levels[a] {
                    for y in 0..levels[b] {
                        all.extend((0..levels[c]).map(|z| [(a, x), (b, y), (c, z)]));
                    }
                }
            }
        }
    }
    all
}

/// Rows that cover all triples, found greedily: each row starts from an uncovered triple, and every further factor
/// takes the level that covers most. Always the same rows.
pub fn three_wise(levels: &[usize]) -> Vec<Vec<usize>> {
    let mut uncovered = triples(levels);
    let mut rows = Vec::new();
    while let Some(seed) = uncovered.first().copied() {
        let mut row: Vec<Option<usize>> = vec![None; levels.len()];
        for (factor, level) in seed {
            row[factor] = Some(level);
        }
        for factor in 0..levels.len() {
            if row[factor].is_some() {
                continue;
            }
            let known: Vec<(usize, usize)> =
                row.iter().enumerate().filter_map(|(other, level)| Some((other, (*level)?))).collect();
            let gain = |level: usize| {
                let mut gain = 0;
                for (index, first) in known.iter().enumerate() {
                    for second in &known[index + 1..] {
                        let mut triple = [*first, *second, (factor, level)];
                        triple.sort_unstable();
                        gain += usize::from(uncovered.contains(&triple));
                    }
                }
                gain
            };
            // Ties go to a level that differs from row to row.
            let turn = |level: usize| (level + levels[factor] - rows.len() % levels[factor]) % levels[factor];
            row[factor] = (0..levels[factor]).max_by_key(|level| (gain(*level), turn(*level)));
        }
        let row: Vec<usize> = row.into_iter().map(|level| level.expect("every factor has a level")).collect();
        uncovered.retain(|triple| triple.iter().any(|(factor, level)| row[*factor] != *level));
        rows.push(row);
    }
    rows
}

#[test]
fn every_combination_of_three_factors_is_in_some_row() {
    let levels = [3, 2, 4, 2, 3];
    let rows = three_wise(&levels);
    for triple in triples(&levels) {
        assert!(
            rows.iter().any(|row| triple.iter().all(|(factor, level)| row[*factor] == *level)),
            "{triple:?}"
        );
    }
    assert!(rows.len() < 3 * 2 * 4 * 2 * 3, "fewer than all combinations");
    assert_eq!(rows, three_wise(&levels), "always the same");
}
