//! Passes over the folder: how files affect each other.

use super::*;

/// What a store that takes parts answers; to the request that completes a file, this.
fn in_parts(asked: &Asked, at_the_end: StatusCode) -> Response {
    match (&asked.method, asked.uri.query().unwrap_or_default()) {
        (&Method::HEAD, _) => StatusCode::NOT_FOUND.into_response(),
        (&Method::POST, "uploads=") => {
            "<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>"
                .into_response()
        }
        (&Method::POST, _) => {
            let done = "<CompleteMultipartUploadResult><ETag>\"2\"</ETag></CompleteMultipartUploadResult>";
            (at_the_end, done).into_response()
        }
        _ => (TAG, "").into_response(),
    }
}

fn large(bed: &Bed, name: &str, size: usize) {
    let file = File::create(bed.folder.path().join(name)).unwrap();
    file.set_len(u64::try_from(size).unwrap()).unwrap();
}

/// What is still to be sent.
fn left(bed: &Bed) -> Vec<String> {
    files::unsent(bed.folder.path()).unwrap().into_iter().map(|found| found.name).collect()
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_not_in_the_way_of_others() {
    let store = StandIn::start(None, |asked| {
        // Every name that the first file could have is taken.
        let is_first = asked.uri.path().contains("pod-1.00000000");
        match asked.method {
            Method::PUT if is_first => StatusCode::PRECONDITION_FAILED.into_response(),
            Method::HEAD => ([TAG[0].clone(), MODIFIED], "x").into_response(),
            _ => (TAG, "").into_response(),
        }
    })
    .await;
    let mut bed = Bed::amazon(store.port);
    bed.write(NAME, "{}\n");
    bed.write("pod-2.00000000.jsonl", "{}\n");
    assert_eq!(bed.sender.send_all().await, Err(Failure::Refused));
    assert_eq!(left(&bed), [NAME]);
    // Its names stay taken: it is not sent whole again and again.
    store.asked();
    assert_eq!(bed.sender.send_all().await, Ok(()));
    assert!(store.asked().is_empty());
}

#[tokio::test]
async fn a_file_that_cannot_be_noted_as_sent_is_sent_once_all_the_same() {
    let store = StandIn::answering(StatusCode::OK, "").await;
    let mut bed = Bed::amazon(store.port);
    bed.write(NAME, "{}\n");
    // No file can be made there.
    let in_the_way = bed.folder.path().join(format!("{NAME}.sent"));
    std::fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        assert_eq!(bed.sender.send_all().await, Ok(()));
    }
    assert_eq!(store.asked().len(), 1);
    assert!(bed.counted("sluice_journal_files_stored_total 1"), "{}", bed.registry.text());
}

#[tokio::test]
async fn a_large_file_is_sent_in_parts_of_bounded_size() {
    let store = StandIn::start(None, |asked| in_parts(asked, StatusCode::OK)).await;
    let mut bed = Bed::amazon(store.port);
    large(&bed, NAME, 2 * PART + 5);
    bed.send().await.unwrap();
    let puts: Vec<_> = store.asked().into_iter().filter(|asked| asked.method == Method::PUT).collect();
    assert_eq!(puts.iter().map(|put| put.body.len()).collect::<Vec<_>>(), [PART, PART, 5]);
}

/// As where a bucket's policy demands `if-none-match`, or the right to write over objects is missing.
#[tokio::test]
async fn large_files_of_before_that_are_refused_are_not_in_the_way_of_others() {
    let store = StandIn::start(None, |asked| in_parts(asked, StatusCode::FORBIDDEN)).await;
    let mut bed = Bed::amazon(store.port);
    let older = ["old-1.00000000.jsonl", "old-1.00000001.jsonl", "old-1.00000002.jsonl"];
    for name in older {
        large(&bed, name, PART + 1);
    }
    bed.write(NAME, "{}\n");
    bed.write("pod-1.00000001.jsonl", "{}\n");
    for _ in 0..2 {
        assert_eq!(bed.sender.send_all().await, Err(Failure::Refused));
        assert_eq!(left(&bed), older);
    }
    assert_eq!(bed.sender.failing, Some(Failure::Refused), "it is said once");
    assert!(bed.counted("sluice_journal_files_stored_total 2"), "{}", bed.registry.text());
}

#[tokio::test]
async fn one_file_that_is_refused_does_not_keep_others_from_being_sent_but_a_store_that_refuses_is_left_alone()
 {
    let store = StandIn::start(None, |asked| {
        let is_first = asked.uri.path().ends_with(NAME);
        let status = if is_first { StatusCode::FORBIDDEN } else { StatusCode::OK };
        (status, TAG, "").into_response()
    })
    .await;
    let mut bed = Bed::amazon(store.port);
    for number in 0..4 {
        bed.write(&format!("pod-1.0000000{number}.jsonl"), "{}\n");
    }
    assert_eq!(bed.sender.send_all().await, Err(Failure::Refused));
    assert_eq!(left(&bed), [NAME]);

    let store = StandIn::answering(StatusCode::FORBIDDEN, "").await;
    let mut bed = Bed::amazon(store.port);
    for number in 0..4 {
        bed.write(&format!("pod-1.0000000{number}.jsonl"), "{}\n");
    }
    assert_eq!(bed.sender.send_all().await, Err(Failure::Refused));
    assert_eq!((store.asked().len(), left(&bed).len()), (MOST_REFUSALS, 4));
}
