use super::*;

fn section() -> DdpSection {
    DdpSection {
        search: vec!["/a".into(), "/b".into()],
        file: "ice.pkg".into(),
        require: false,
    }
}

fn texts(paths: &[PathBuf]) -> Vec<String> {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect()
}

#[test]
fn the_package_of_this_very_card_is_looked_for_first() {
    let paths = texts(&candidates(&section(), Some(0x1234)));
    let expected = [
        "/a/ice-0000000000001234.pkg",
        "/a/ice-0000000000001234.pkg.xz",
        "/a/ice-0000000000001234.pkg.zst",
        "/a/ice.pkg",
        "/a/ice.pkg.xz",
        "/a/ice.pkg.zst",
        "/b/ice-0000000000001234.pkg",
    ];
    assert_eq!(paths[..7], expected);
    assert_eq!(paths.len(), 12);
}

#[test]
fn an_absolute_file_is_looked_for_nowhere_else() {
    let section = DdpSection {
        file: "/x/my.pkg".into(),
        ..section()
    };
    let paths = texts(&candidates(&section, Some(1)));
    assert_eq!(paths, ["/x/my.pkg", "/x/my.pkg.xz", "/x/my.pkg.zst"]);
}

fn content() -> Vec<u8> {
    (0..20_000u32).map(|n| (n / 7) as u8).collect()
}

fn path() -> &'static Path {
    Path::new("test.pkg")
}

fn packed_xz(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    lzma_rs::xz_compress(&mut &content[..], &mut packed).unwrap();
    packed
}

#[test]
fn plain_and_packed_files_unpack_to_the_same() {
    assert_eq!(unpack(content(), path()), Ok(content()));
    assert_eq!(unpack(packed_xz(&content()), path()), Ok(content()));
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let packed = ruzstd::encoding::compress_to_vec(content().as_slice(), level);
    assert_eq!(unpack(packed, path()), Ok(content()));
}

#[test]
fn a_damaged_packed_file_is_refused_with_its_name() {
    let whole = packed_xz(&content());
    for length in [7, 13, whole.len() / 2, whole.len() - 1] {
        let error = unpack(whole[..length].to_vec(), path()).unwrap_err();
        assert!(error.to_string().contains("test.pkg"), "{error}");
    }
    let error = unpack(vec![0x28, 0xB5, 0x2F, 0xFD, 0xFF, 0xFF], path()).unwrap_err();
    assert!(
        matches!(error, FileError::Unpacking { format: ".zst", .. }),
        "{error}"
    );
}

#[test]
fn a_small_file_that_unpacks_to_too_much_is_refused_unread() {
    // Chunk headers that each promise 2 MiB from one packed byte.
    let mut bomb = vec![0xFD, b'7', b'z', b'X', b'Z', 0, 0, 1, 0, 0, 0, 0];
    bomb.extend_from_slice(&[2, 0, 0x21, 1, 0x16, 0, 0, 0, 0, 0, 0, 0]);
    for _ in 0..9 {
        bomb.extend_from_slice(&[0xFF, 0xFF, 0xFF, 0, 0, 0x5D, 0]);
    }
    // the end of the block and its checksum, an index without records, a footer
    bomb.extend_from_slice(&[0; 1 + 4 + 8]);
    bomb.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 1, b'Y', b'Z']);
    assert_eq!(xz::unpacked_bytes(&bomb), Some(9 * (2 << 20)));
    assert!(matches!(
        unpack(bomb, path()),
        Err(FileError::TooLarge { .. })
    ));
}

#[test]
fn the_size_of_an_xz_file_is_told_before_it_is_unpacked() {
    let length = content().len() as u64;
    assert_eq!(xz::unpacked_bytes(&packed_xz(&content())), Some(length));
    assert_eq!(xz::unpacked_bytes(&xz::MAGIC), None);
}

#[test]
fn a_file_larger_than_any_package_is_refused() {
    let error = bounded(io::repeat(0), path()).unwrap_err();
    assert!(matches!(error, FileError::TooLarge { .. }), "{error}");
}

#[test]
fn an_xz_file_whose_footer_denies_its_index_is_refused() {
    let whole = packed_xz(&content());
    let field = whole.len() - 8..whole.len() - 4;
    for said in [0, u32::MAX] {
        let mut denied = whole.clone();
        denied[field.clone()].copy_from_slice(&said.to_le_bytes());
        assert_eq!(xz::unpacked_bytes(&denied), None);
        let error = unpack(denied, path()).unwrap_err();
        assert!(matches!(error, FileError::Unpacking { .. }), "{error}");
    }
}

#[test]
fn an_xz_block_that_would_be_unpacked_twice_is_refused() {
    let mut twice = packed_xz(&content());
    // the block's flags: one more filter
    twice[13] |= 1;
    assert_eq!(xz::unpacked_bytes(&twice), None);
}
