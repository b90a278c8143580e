//! The engine puts some variants in the wrong order (`print:` before `md:`, `hover:` before `odd:`). This pass sorts the
//! rules as Tailwind does: by the variant that decides most, then the next one. Of equals it puts a shorthand before its
//! parts, and leaves the rest where it is.
//! Order as in Tailwind 4.3, `packages/tailwindcss/src/variants.ts`.

use super::sheet::Statement;

/// Variants from weakest to strongest. `max-*` and `min-*` breakpoints are placed by [`rank`].
const VARIANTS: &[&str] = &[
    "*",
    "**",
    "not",
    "group",
    "peer",
    "first-letter",
    "first-line",
    "marker",
    "selection",
    "file",
    "placeholder",
    "backdrop",
    "details-content",
    "before",
    "after",
    "first",
    "last",
    "only",
    "odd",
    "even",
    "first-of-type",
    "last-of-type",
    "only-of-type",
    "visited",
    "target",
    "open",
    "default",
    "checked",
    "indeterminate",
    "placeholder-shown",
    "autofill",
    "optional",
    "required",
    "valid",
    "invalid",
    "user-valid",
    "user-invalid",
    "in-range",
    "out-of-range",
    "read-only",
    "empty",
    "focus-within",
    "hover",
    "focus",
    "focus-visible",
    "active",
    "enabled",
    "disabled",
    "inert",
    "in",
    "has",
    "aria",
    "data",
    "nth",
    "nth-last",
    "nth-of-type",
    "nth-last-of-type",
    "supports",
    "motion-safe",
    "motion-reduce",
    "contrast-more",
    "contrast-less",
    MAX,
    MIN,
    "@max",
    "@",
    "portrait",
    "landscape",
    "ltr",
    "rtl",
    "dark",
    "starting",
    "print",
    "forced-colors",
    "inverted-colors",
    "pointer-none",
    "pointer-coarse",
    "pointer-fine",
    "any-pointer-none",
    "any-pointer-coarse",
    "any-pointer-fine",
    "noscript",
];
const MAX: &str = "max";
const MIN: &str = "min";

/// Variants with an argument (`group-hover`, `data-[x=y]`); the longest that fits counts.
const WITH_ARGUMENT: &[&str] = &[
    "not",
    "group",
    "peer",
    "in",
    "has",
    "aria",
    "data",
    "nth-last-of-type",
    "nth-of-type",
    "nth-last",
    "nth",
    "supports",
    "@max",
    "@",
];

/// Sorts utility rules; `breakpoints` are names and widths in pixels.
pub(crate) fn sort(rules: &mut [Statement], breakpoints: &[(String, u32)]) {
    let key = |rule: &Statement| {
        let mut ranks: Vec<_> = variants(&class(&rule.head)).iter().map(|name| rank(name, breakpoints)).collect();
        ranks.sort_unstable_by(|left, right| right.cmp(left));
        ranks
    };
    rules.sort_by_cached_key(key);
    for group in rules.chunk_by_mut(|left, right| key(left) == key(right)) {
        shorthands_first(group);
    }
}

/// Moves a rule before the first one that sets a part of what it sets: `border-y` before `border-t`.
fn shorthands_first(rules: &mut [Statement]) {
    for index in 1..rules.len() {
        let wide = properties(&rules[index]);
        let first = rules[..index]
            .iter()
            .position(|rule| properties(rule).iter().any(|narrow| wide.iter().any(|wide| covers(wide, narrow))));
        if let Some(first) = first {
            rules[first..=index].rotate_right(1);
        }
    }
}

fn properties(rule: &Statement) -> Vec<&str> {
    rule.body
        .iter()
        .flatten()
        .flat_map(|inner| match inner.body {
            Some(_) => properties(inner),
            None => inner.head.split(':').next().into_iter().collect(),
        })
        .collect()
}

/// Whether setting `wide` sets `narrow` too. Only pairs that the engine gets wrong.
fn covers(wide: &str, narrow: &str) -> bool {
    if let Some(what) = wide.strip_prefix("place-") {
        return [format!("align-{what}"), format!("justify-{what}")].contains(&narrow.to_owned());
    }
    if ["grid-column", "grid-row"].contains(&wide) {
        return narrow != wide && narrow.starts_with(wide);
    }
    let sides = |property: &str| -> Option<(String, String)> {
        let (sides, what) =
            property.strip_prefix("border-")?.rsplit_once('-').unwrap_or(("", property.strip_prefix("border-")?));
        ["width", "color"].contains(&what).then(|| (sides.to_owned(), what.to_owned()))
    };
    match (sides(wide), sides(narrow)) {
        (Some((wide, of)), Some((narrow, what))) if of == what && wide != narrow => match wide.as_str() {
            "" => true,
            "inline" => ["inline-start", "inline-end", "left", "right"].contains(&&*narrow),
            "block" => ["block-start", "block-end", "top", "bottom"].contains(&&*narrow),
            _ => false,
        },
        _ => false,
    }
}

/// The class in `.md\:flex` or `.x::before`, without escapes.
fn class(selector: &str) -> String {
    let mut class = String::new();
    let mut chars = selector.trim_start_matches('.').chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => class.extend(chars.next()),
            c if c.is_alphanumeric() || matches!(c, '-' | '_') || !c.is_ascii() => class.push(c),
            _ => break,
        }
    }
    class
}

/// `md`, `hover` of `md:hover:p-[a:b]`.
fn variants(class: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (index, c) in class.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            ':' if depth == 0 => {
                parts.push(&class[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts
}

/// Place of a variant, and a second number that orders within the place.
fn rank(variant: &str, breakpoints: &[(String, u32)]) -> (usize, u32) {
    let place = |name: &str| VARIANTS.iter().position(|known| *known == name);
    let width = |name: &str| {
        breakpoints
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, width)| *width)
            .or_else(|| name.strip_prefix('[')?.strip_suffix("px]")?.parse().ok())
    };
    if let Some(exact) = place(variant).filter(|_| ![MAX, MIN, "@"].contains(&variant)) {
        return (exact, 0);
    }
    if let (Some(place), Some(width)) = (place(MAX), variant.strip_prefix("max-").and_then(width)) {
        return (place, u32::MAX - width);
    }
    if let (Some(place), Some(width)) = (place(MIN), width(variant.strip_prefix("min-").unwrap_or(variant))) {
        return (place, width);
    }
    let argument = WITH_ARGUMENT.iter().find_map(|name| {
        let rest = variant.strip_prefix(name)?;
        let rest = if *name == "@" { rest } else { rest.strip_prefix('-')? };
        Some((place(name)?, rest))
    });
    match argument {
        Some((exact, rest)) => (
            exact,
            place(rest.split('/').next().unwrap_or(rest)).and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX),
        ),
        None => (VARIANTS.len(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(classes: &[&str]) -> Vec<String> {
        let escape = |class: &str| class.replace(':', "\\:");
        let mut rules: Vec<_> =
            classes.iter().map(|class| Statement::block(&format!(".{}", escape(class)), vec![])).collect();
        sort(&mut rules, &[("sm".into(), 640), ("md".into(), 900), ("lg".into(), 1180)]);
        rules.iter().map(|rule| class(&rule.head)).collect()
    }

    #[test]
    fn variants_follow_tailwind() {
        assert_eq!(
            sorted(&[
                "print:p",
                "md:hover:p",
                "lg:p",
                "hover:p",
                "odd:p",
                "p",
                "md:p",
                "sm:p",
                "max-sm:p",
                "max-md:p",
                "group-hover:p"
            ]),
            [
                "p",
                "group-hover:p",
                "odd:p",
                "hover:p",
                "max-md:p",
                "max-sm:p",
                "sm:p",
                "md:p",
                "md:hover:p",
                "lg:p",
                "print:p"
            ]
        );
    }

    #[test]
    fn shorthands_come_before_their_parts() {
        let rule = |class: &str, property: &str| {
            Statement::block(class, vec![Statement { head: format!("{property}: 1px"), body: None }])
        };
        let mut rules = vec![
            rule(".border-t", "border-top-width"),
            rule(".x", "color"),
            rule(".border-y", "border-block-width"),
            rule(".border", "border-width"),
            rule(".items", "align-items"),
            rule(".place-items", "place-items"),
        ];
        sort(&mut rules, &[]);
        let order: Vec<_> = rules.iter().map(|rule| rule.head.as_str()).collect();
        assert_eq!(order, [".border", ".border-y", ".border-t", ".x", ".place-items", ".items"]);
    }

    #[test]
    fn equals_keep_their_order() {
        assert_eq!(sorted(&["md:px", "b", "md:pt", "a"]), ["b", "a", "md:px", "md:pt"]);
    }

    #[test]
    fn classes_are_read_from_selectors() {
        assert_eq!(class(r".data-\[state\=failed\]\:p::before"), "data-[state=failed]:p");
        assert_eq!(variants("data-[a:b]:hover:p-[c:d]"), ["data-[a:b]", "hover"]);
    }
}
