//! Texts that users enter and other people see.

/// Returns whether all characters are visible: none is a control character, changes the direction of the
/// text, or has no width. Others could make a text look like a different one.
pub fn is_visible(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || is_invisible(c))
}

/// Returns whether a character is a filler or of the category `Format` (Unicode 16), except variation
/// selectors of emoji.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use crate::records::label;
    use crate::users::UserEmail;

    #[test]
    fn labels_and_emails_have_only_visible_characters() {
        for visible in ["ada", "zoë", "Ärzte & Söhne", "日本語", "مرحبا", "🚀"] {
            assert_eq!(label(visible), Some(visible));
        }
        assert!("zoë@bücher.example".parse::<UserEmail>().is_ok());
        for invisible in "\n\u{7f}\u{85}\u{9b}\u{200b}\u{200e}\u{202e}\u{2066}\u{feff}\u{e0041}".chars() {
            assert_eq!(label(&format!("a{invisible}b")), None, "{invisible:?}");
            assert!(format!("a{invisible}b@company.com").parse::<UserEmail>().is_err(), "{invisible:?}");
            assert!(format!("\"a{invisible}\"@company.com").parse::<UserEmail>().is_err(), "{invisible:?}");
            assert!(format!("ab@comp{invisible}any.com").parse::<UserEmail>().is_err(), "{invisible:?}");
        }
    }
}
