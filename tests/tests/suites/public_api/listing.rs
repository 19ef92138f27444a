//! The public items of a crate, read from its source.
//!
//! The lint `unreachable_pub` ensures that every `pub` item is reachable from outside. The listing is
//! therefore exactly the API for embedders: signatures without bodies, public fields and methods, and the
//! traits that types implement.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use syn::{
    Attribute, Field, Fields, File, ImplItem, Item, ItemImpl, TraitItem, Type, Visibility, parse_quote,
};

/// Returns the public items of the crate with the root file `lib`, by module in source order.
pub(crate) fn of(lib: &Path) -> String {
    let mut modules = Vec::new();
    read(lib, lib.parent().unwrap(), "crate", &mut modules);
    let names = modules.iter().flat_map(|(_, items)| items).filter_map(public_name).collect();
    let mut listing = String::new();
    for (path, items) in modules {
        let items: Vec<_> = items.into_iter().filter_map(|item| public(item, &names)).collect();
        if !items.is_empty() {
            let file = File { shebang: None, frontmatter: None, attrs: Vec::new(), items };
            listing += &format!("=== {path} ===\n{}\n", prettyplease::unparse(&file));
        }
    }
    listing
}

/// Reads a file and then the files of its modules, which are in `dir`.
fn read(file: &Path, dir: &Path, path: &str, modules: &mut Vec<(String, Vec<Item>)>) {
    let parsed = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
    let items: Vec<_> =
        parsed.items.into_iter().filter(|item| !is_for_tests(item)).flat_map(unwrapped).collect();
    let names: Vec<_> = items.iter().filter_map(file_module).collect();
    modules.push((path.to_owned(), items));
    for name in names {
        let (flat, nested) = (dir.join(format!("{name}.rs")), dir.join(&name).join("mod.rs"));
        let file = if flat.exists() { flat } else { nested };
        read(&file, &dir.join(&name), &format!("{path}::{name}"), modules);
    }
}

/// Returns the items inside a macro invocation. Panics if its input is not items, because the listing would
/// be incomplete.
fn unwrapped(item: Item) -> Vec<Item> {
    let Item::Macro(item) = item else { return vec![item] };
    if item.mac.path.is_ident("macro_rules") {
        return Vec::new();
    }
    syn::parse2::<File>(item.mac.tokens).expect("a macro that takes items").items
}

fn file_module(item: &Item) -> Option<String> {
    let Item::Mod(module) = item else { return None };
    assert!(module.content.is_none(), "a module in a file of its own: {}", module.ident);
    Some(module.ident.to_string())
}

/// Returns whether an item is compiled only for tests, including the replacements of the locks under
/// `cfg(shuttle)`.
fn is_for_tests(item: &Item) -> bool {
    let for_tests: [Attribute; 2] = [parse_quote!(#[cfg(test)]), parse_quote!(#[cfg(shuttle)])];
    attributes(item)
        .is_some_and(|attributes| attributes.iter().any(|attribute| for_tests.contains(attribute)))
}

fn attributes(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}

/// Returns the name of a public type or trait.
fn public_name(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    is_public(visibility).then(|| name.to_string())
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns the public part of an item, or `None` if it has none.
fn public(item: Item, names: &BTreeSet<String>) -> Option<Item> {
    let mut item = item;
    let is_seen = match &mut item {
        Item::Struct(item) => {
            keep_telling(&mut item.attrs);
            hide_private(&mut item.fields);
            is_public(&item.vis)
        }
        Item::Enum(item) => {
            keep_telling(&mut item.attrs);
            for variant in &mut item.variants {
                keep_telling(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| field.attrs.clear());
            }
            is_public(&item.vis)
        }
        Item::Fn(item) => {
            keep_telling(&mut item.attrs);
            item.block = parse_quote!({});
            is_public(&item.vis)
        }
        Item::Trait(item) => {
            keep_telling(&mut item.attrs);
            item.items.iter_mut().for_each(without_default);
            is_public(&item.vis)
        }
        Item::Impl(item) => {
            keep_telling(&mut item.attrs);
            is_seen_impl(item, names)
        }
        Item::Const(item) => {
            keep_telling(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Type(item) => {
            keep_telling(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Use(item) => {
            keep_telling(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Mod(item) => {
            keep_telling(&mut item.attrs);
            is_public(&item.vis)
        }
        _ => false,
    };
    is_seen.then_some(item)
}

/// Keeps the attributes that are part of the API.
fn keep_telling(attributes: &mut Vec<Attribute>) {
    const TELLING: [&str; 5] = ["derive", "must_use", "non_exhaustive", "deprecated", "async_trait"];
    attributes.retain(|attribute| TELLING.iter().any(|name| attribute.path().is_ident(name)));
}

/// Removes the private fields, but leaves a placeholder that shows that there are some.
fn hide_private(fields: &mut Fields) {
    fields.iter_mut().for_each(|field| field.attrs.clear());
    let has_private = fields.iter().any(|field| !is_public(&field.vis));
    match fields {
        Fields::Named(fields) => {
            fields.named =
                std::mem::take(&mut fields.named).into_iter().filter(|f| is_public(&f.vis)).collect();
            if has_private {
                fields.named.push(parse_quote!(_private: _));
            }
        }
        Fields::Unnamed(fields) => fields.unnamed.iter_mut().filter(|f| !is_public(&f.vis)).for_each(hide),
        Fields::Unit => {}
    }
}

fn hide(field: &mut Field) {
    field.vis = Visibility::Inherited;
    field.ty = parse_quote!(_);
}

fn without_default(item: &mut TraitItem) {
    if let TraitItem::Fn(method) = item {
        keep_telling(&mut method.attrs);
        method.default = method.default.as_ref().map(|_| parse_quote!({}));
    }
}

/// Returns whether an `impl` block of a public type is part of the API: a trait with its types and constants,
/// or public inherent items.
fn is_seen_impl(item: &mut ItemImpl, names: &BTreeSet<String>) -> bool {
    let is_of_trait = item.trait_.is_some();
    item.items.retain(|item| match item {
        ImplItem::Fn(method) => !is_of_trait && is_public(&method.vis),
        ImplItem::Const(constant) => is_of_trait || is_public(&constant.vis),
        ImplItem::Type(_) => true,
        _ => false,
    });
    for item in &mut item.items {
        match item {
            ImplItem::Fn(method) => {
                keep_telling(&mut method.attrs);
                method.block = parse_quote!({});
            }
            ImplItem::Const(constant) => keep_telling(&mut constant.attrs),
            _ => {}
        }
    }
    let is_public_type = match &*item.self_ty {
        Type::Path(path) => names.contains(&path.path.segments.last().unwrap().ident.to_string()),
        _ => true,
    };
    is_public_type && (is_of_trait || !item.items.is_empty())
}
