//! Inputs of the benchmarks: made by arithmetic, the same in every run.

/// Twenty rules as sites have them, four of them with wildcards.
pub const TWENTY: &str = "User-agent: *
Disallow: /admin/
Disallow: /cart
Disallow: /checkout/
Disallow: /account/login
Disallow: /account/orders
Allow: /account/help
Disallow: /search
Disallow: /*?sort=
Disallow: /*.pdf
Disallow: /wp-admin/
Allow: /wp-admin/admin-ajax.php
Disallow: /cgi-bin/
Disallow: /tmp/
Disallow: /private
Disallow: /products/*/reviews/new
Disallow: /api/
Allow: /api/public/
Disallow: /*/print/
Disallow: /internal/
Disallow: /feed
";

/// A robots.txt for all agents, of these rules.
pub fn file(rules: impl IntoIterator<Item = String>) -> String {
    let mut text = String::from("User-agent: *\n");
    for rule in rules {
        text.push_str("Disallow: ");
        text.push_str(&rule);
        text.push('\n');
    }
    text
}

/// 5,000 rules: half literal, a quarter `/*needle=`, a quarter with a star inside.
pub fn mixed(count: usize) -> String {
    file((0..count).map(|n| match n % 4 {
        0 => format!("/section{}/page{n}", n % 97),
        1 => format!("/{}/{n}/", word(n)),
        2 => format!("/*{}{n}=", word(n)),
        _ => format!("/{}{n}/*/edit", word(n)),
    }))
}

/// Patterns that all begin with a star.
pub fn leading_stars(count: usize) -> String {
    file((0..count).map(|n| format!("*{}{n}", word(n))))
}

/// A file of about this many bytes with several groups, comments and sitemaps, as large sites have them.
pub fn large(bytes: usize) -> String {
    let mut text =
        String::from("# robots.txt of example.com\nSitemap: https://example.com/sitemap.xml\n\nUser-agent: *\n");
    let mut n = 0;
    while text.len() < bytes {
        let line = match n % 40 {
            7 => "# no crawlers below here\n".to_owned(),
            19 => format!("Allow: /{}/{n}/index.html\n", word(n)),
            25 => format!("Disallow: /*?{}={n}\n", word(n)),
            30 => format!("Disallow: /{}/*/print-{n}\n", word(n)),
            _ => format!("Disallow: /{}/{}/item-{n}\n", word(n), word(n / 7)),
        };
        text.push_str(&line);
        if n % 4000 == 3999 {
            text.push_str(&format!("\nUser-agent: {}bot\nCrawl-delay: 2\n", word(n)));
        }
        n += 1;
    }
    text
}

/// A word of a language that nobody speaks.
pub fn word(n: usize) -> String {
    const SYLLABLES: [&str; 16] =
        ["ka", "lo", "mi", "ne", "ru", "sa", "ti", "vo", "be", "da", "fu", "go", "hi", "ju", "pe", "wa"];
    let mut n = n.wrapping_mul(2_654_435_761) % 65_536;
    let mut word = String::new();
    for _ in 0..4 {
        word.push_str(SYLLABLES[n % 16]);
        n /= 16;
    }
    word
}
