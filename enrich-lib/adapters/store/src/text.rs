//! Texts that users enter and other people see.

/// Returns whether there is a visible character, and all are visible: none is a control character, changes the
/// direction of the text, or has no width, except those that join and vary emoji. Others could make a text look
/// like a different one.
pub fn is_visible(text: &str) -> bool {
    let chars: Vec<_> = text.chars().collect();
    let is_selector = |c| matches!(c, '\u{fe00}'..='\u{fe0f}');
    let is_joiner = |at: usize| {
        let before = chars[..at].iter().rfind(|c| !is_selector(**c));
        let (before, after) = (before.copied(), chars.get(at + 1).copied());
        chars[at] == '\u{200d}' && before.is_some_and(is_emoji) && after.is_some_and(is_emoji)
    };
    let mut all = chars.iter().enumerate();
    all.all(|(at, c)| !c.is_control() && (!is_invisible(*c) || is_joiner(at)))
        && chars.iter().any(|c| !c.is_whitespace() && !is_selector(*c))
}

/// Returns whether an emoji can begin or end with this character. Some others in these blocks are symbols.
fn is_emoji(c: char) -> bool {
    matches!(c, '\u{2194}'..='\u{2195}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// Returns whether a character is a filler or of the category `Format` (Unicode 16), except variation
/// selectors of emoji.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use crate::records::label;
    use crate::users::UserEmail;

    #[test]
    fn labels_and_emails_have_only_visible_characters() {
        for visible in
            ["ada", "zoë", "Ärzte & Söhne", "日本語", "مرحبا", "🚀", "❤\u{fe0f}", "👨\u{200d}👩🏽\u{200d}👧 x"]
        {
            assert_eq!(label(visible), Some(visible));
        }
        assert!(
            label(&"ä".repeat(100)).is_some() && label(&"ä".repeat(101)).is_none(),
            "characters, not bytes"
        );
        for empty in [
            "\u{fe0f}",
            "\u{2800}",
            "\u{fe0f} \u{fe0e}",
            "\u{e0100}",
            "👨\u{200d}",
            "\u{200d}👧",
            "a\u{fe0f}\u{200d}\u{fe0f}b",
        ] {
            assert_eq!(label(empty), None, "{empty:?}");
        }
        assert!("zoë@bücher.example".parse::<UserEmail>().is_ok());
        for invisible in
            "\n\u{7f}\u{85}\u{9b}\u{200b}\u{200d}\u{2800}\u{200e}\u{202e}\u{2066}\u{feff}\u{e0041}".chars()
        {
            assert_eq!(label(&format!("a{invisible}b")), None, "{invisible:?}");
            assert!(format!("a{invisible}b@company.com").parse::<UserEmail>().is_err(), "{invisible:?}");
            assert!(format!("\"a{invisible}\"@company.com").parse::<UserEmail>().is_err(), "{invisible:?}");
            assert!(format!("ab@comp{invisible}any.com").parse::<UserEmail>().is_err(), "{invisible:?}");
        }
    }

    #[test]
    fn each_email_is_the_same_when_it_is_read_again() {
        for letter in ('a'..=char::MAX).filter(|c| c.is_alphabetic()) {
            let longest = letter.to_string().repeat(64 / letter.len_utf8());
            if let Ok(email) = format!("{longest}@company.com").parse::<UserEmail>() {
                assert_eq!(email.as_str().parse(), Ok(email.clone()), "{letter:?}");
            }
        }
        assert_eq!("zoë@bücher.example".parse::<UserEmail>(), "ZOE\u{308}@bu\u{308}cher.example".parse());
    }
}
