//! What is printed for what is typed, word for word. After a change that is meant, `TRYCMD=overwrite cargo test -p
//! sealdisk --test transcripts` writes the transcripts anew.

#[test]
fn transcripts() {
    trycmd::TestCases::new()
        .env("SEALDISK_RUNTIME_DIR", "/nonexistent/sealdisk")
        .env("COLUMNS", "100")
        .case("tests/transcripts/*.trycmd");
}
