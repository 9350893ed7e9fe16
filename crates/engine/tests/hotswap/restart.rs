//! Displace → swap, cut after every write: an engine that knows only the API objects continues, and the end is the same.

use crate::bed::Bed;
use crate::page::page;

fn go_on(bed: &mut Bed) {
    if bed.c.writes_left == Some(0) {
        bed.c.writes_left = None;
        bed.c.restart();
    }
}

fn pass(bed: &mut Bed, seconds: i64) {
    for _ in 0..seconds {
        bed.pass(1);
        go_on(bed);
    }
}

fn play(cut: Option<usize>) -> (Bed, usize) {
    let mut bed = page(64);
    let before = bed.c.writes.len();
    bed.c.writes_left = cut;
    bed.fail(&["a"]);
    bed.c.advance(29);
    go_on(&mut bed);
    pass(&mut bed, 9);
    let at = format!("{cut:?}: {}", bed.reported("high", "QuotaReserved"));
    assert!(bed.runs("high"), "{at}");
    assert!(!bed.pools_of("high").contains(&"a".to_owned()), "{at}");
    assert!(!bed.runs("low"), "{at}");
    bed.come_back(&["a"]);
    pass(&mut bed, 5);
    let writes = bed.c.writes.len() - before;
    (bed, writes)
}

#[test]
fn displace_and_swap() {
    let (_, writes) = play(None);
    for cut in 0..=writes {
        let (bed, _) = play(Some(cut));
        let at = format!("cut after {cut} of {writes}");
        assert!(bed.c.writes_left.is_none() || cut >= writes, "{at}: never reached");
        assert!(bed.runs("high") && bed.runs("low"), "{at}");
        assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)], "{at}");
        assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)], "{at}");
    }
    println!("displace and swap: {writes} writes, {} cuts, one end", writes + 1);
}
