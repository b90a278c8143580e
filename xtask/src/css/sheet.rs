//! Just enough CSS syntax: split a sheet into statements, join imports, write it small.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// One statement of a sheet or block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    /// Selector, at-rule head or declaration, with single spaces and without comments.
    pub(crate) head: String,
    /// What stands in braces; `None` ends with a semicolon.
    pub(crate) body: Option<Vec<Statement>>,
}

impl Statement {
    /// A block such as `@layer base { … }`.
    pub(crate) fn block(head: &str, body: Vec<Statement>) -> Self {
        Self { head: head.to_owned(), body: Some(body) }
    }

    /// All text below and including this statement, for searching.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        write_statement(self, &mut text);
        text
    }
}

/// Splits a sheet into statements.
pub(crate) fn parse(css: &str) -> Result<Vec<Statement>> {
    let chars: Vec<char> = css.chars().collect();
    let mut index = 0;
    let statements = parse_block(&chars, &mut index)?;
    if index < chars.len() {
        bail!("a closing brace too many at character {index}");
    }
    Ok(statements)
}

fn parse_block(chars: &[char], index: &mut usize) -> Result<Vec<Statement>> {
    let mut statements = Vec::new();
    let mut head = String::new();
    let mut parens = 0_i32;
    while *index < chars.len() {
        let here = chars[*index];
        match here {
            '/' if chars.get(*index + 1) == Some(&'*') => {
                *index += 2;
                while *index + 1 < chars.len() && !(chars[*index] == '*' && chars[*index + 1] == '/') {
                    *index += 1;
                }
                *index += 2;
                space(&mut head);
            }
            '\\' => {
                head.push(here);
                head.extend(chars.get(*index + 1));
                *index += 2;
            }
            '"' | '\'' => {
                head.push(here);
                *index += 1;
                while *index < chars.len() && chars[*index] != here {
                    head.push(chars[*index]);
                    if chars[*index] == '\\' {
                        *index += 1;
                        head.extend(chars.get(*index));
                    }
                    *index += 1;
                }
                head.push(here);
                *index += 1;
            }
            '{' if parens == 0 => {
                *index += 1;
                let body = parse_block(chars, index)?;
                if chars.get(*index) != Some(&'}') {
                    bail!("`{}` is not closed", head.trim());
                }
                *index += 1;
                statements.push(Statement { head: head.trim().to_owned(), body: Some(body) });
                head.clear();
            }
            '}' if parens == 0 => break,
            ';' if parens == 0 => {
                *index += 1;
                push_plain(&mut statements, &mut head);
            }
            _ => {
                parens += match here {
                    '(' | '[' => 1,
                    ')' | ']' => -1,
                    _ => 0,
                };
                if here.is_whitespace() {
                    space(&mut head)
                } else {
                    head.push(here)
                }
                *index += 1;
            }
        }
    }
    push_plain(&mut statements, &mut head);
    Ok(statements)
}

fn space(head: &mut String) {
    if !head.is_empty() && !head.ends_with(' ') {
        head.push(' ');
    }
}

fn push_plain(statements: &mut Vec<Statement>, head: &mut String) {
    let plain = head.trim();
    if !plain.is_empty() {
        statements.push(Statement { head: plain.to_owned(), body: None });
    }
    head.clear();
}

/// Reads a sheet and puts in place of each `@import "./file.css" layer(name)` that file's statements.
/// Other imports stay as they are.
pub(crate) fn read(path: &Path) -> Result<Vec<Statement>> {
    let css = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut joined = Vec::new();
    for statement in parse(&css).with_context(|| format!("in {}", path.display()))? {
        let Some(rest) = statement.head.strip_prefix("@import \"./") else {
            joined.push(statement);
            continue;
        };
        let (file, rest) = rest.split_once('"').context("an import without a closing quote")?;
        let body = read(&path.with_file_name(file))?;
        match rest.trim().strip_prefix("layer(").and_then(|rest| rest.strip_suffix(')')) {
            Some(layer) => joined.push(Statement::block(&format!("@layer {layer}"), body)),
            None => joined.extend(body),
        }
    }
    Ok(joined)
}

/// Neighbouring blocks of the same layer become one.
pub(crate) fn merge_layers(statements: Vec<Statement>) -> Vec<Statement> {
    let mut merged: Vec<Statement> = Vec::new();
    for statement in statements {
        match merged.last_mut() {
            Some(Statement { head, body: Some(body) }) if *head == statement.head && head.starts_with("@layer ") => {
                body.extend(statement.body.unwrap_or_default());
            }
            _ => merged.push(statement),
        }
    }
    merged
}

/// Every class that a selector in these statements names.
pub(crate) fn classes(statements: &[Statement], found: &mut BTreeSet<String>) {
    for Statement { head, body } in statements {
        let Some(body) = body else { continue };
        if !head.starts_with('@') {
            let mut rest = head.as_str();
            while let Some(dot) = rest.find('.') {
                rest = &rest[dot + 1..];
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
                let name = &rest[..end.unwrap_or(rest.len())];
                if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    found.insert(name.to_owned());
                }
            }
        }
        classes(body, found);
    }
}

/// Names of the custom properties that `var()` asks for in a text.
pub(crate) fn variables_used(text: &str) -> BTreeSet<String> {
    text.split("var(")
        .skip(1)
        .map(|rest| rest.trim_start().split([',', ')', ' ']).next().unwrap_or_default().to_owned())
        .collect()
}

/// The sheet without comments and needless space, a line per rule so that a change shows as such.
pub(crate) fn to_css(statements: &[Statement]) -> String {
    let mut css = String::new();
    for statement in statements {
        match &statement.body {
            Some(body) if statement.head.starts_with("@layer ") => {
                css.push_str(&small_head(&statement.head));
                css.push_str("{\n");
                for inner in body {
                    write_statement(inner, &mut css);
                    css.push('\n');
                }
                css.push_str("}\n");
            }
            _ => {
                write_statement(statement, &mut css);
                css.push('\n');
            }
        }
    }
    css
}

fn write_statement(statement: &Statement, css: &mut String) {
    match &statement.body {
        Some(body) => {
            css.push_str(&small_head(&statement.head));
            css.push('{');
            for (index, inner) in body.iter().enumerate() {
                write_statement(inner, css);
                if inner.body.is_none() && index + 1 == body.len() {
                    css.pop();
                }
            }
            css.push('}');
        }
        None if statement.head.starts_with('@') => {
            css.push_str(&small_head(&statement.head));
            css.push(';');
        }
        None => {
            let (name, value) = statement.head.split_once(':').unwrap_or((&statement.head, ""));
            css.push_str(name.trim());
            css.push(':');
            css.push_str(&without_space_after_commas(value.trim()));
            css.push(';');
        }
    }
}

fn small_head(head: &str) -> String {
    let head = without_space_after_commas(head);
    if head.starts_with('@') { head } else { head.replace(" > ", ">") }
}

fn without_space_after_commas(text: &str) -> String {
    let mut quote = None;
    let mut small = String::with_capacity(text.len());
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == ' ' && small.ends_with(',') => continue,
            _ => {}
        }
        small.push(c);
    }
    small
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_is_written_small_and_unchanged_in_meaning() -> Result<()> {
        let css = "/* x */ a , b > c { color: light-dark(#fff, #000) ; margin: calc(1px - 2px); }\n\
                   @media (max-width: 640px) { .x::before { content: \"a,  b\"; } }\n@layer a, b;";
        assert_eq!(
            to_css(&parse(css)?),
            "a ,b>c{color:light-dark(#fff,#000);margin:calc(1px - 2px)}\n\
             @media (max-width: 640px){.x::before{content:\"a,  b\"}}\n@layer a,b;\n"
        );
        Ok(())
    }

    #[test]
    fn classes_of_selectors_are_found() -> Result<()> {
        let mut found = BTreeSet::new();
        classes(&parse("@media print { .a.b > .c-d:hover, e:not(.f) { width: 1.5rem } }")?, &mut found);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a", "b", "c-d", "f"]);
        Ok(())
    }

    #[test]
    fn an_open_block_is_an_error() {
        assert!(parse("a { b: c").is_err());
        assert!(parse("a { b: c } }").is_err());
    }
}
