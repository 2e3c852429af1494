// Carillon · EmailLayout.swift
// SPDX-License-Identifier: Apache-2.0

/// The page for mail that has no template: title, body, the link as a button, and how to stop it.
///
/// Mail programs know tables and inline styles, and little else.
struct EmailLayout {
    let title: String
    let body: String
    let link: String?
    let image: String?
    let unsubscribe: String?

    var html: String {
        var rows = ""
        if !self.title.isEmpty {
            rows += Self.row(#"<h1 style="margin:0;font-size:22px;line-height:30px">\#(Self.escaped(self.title))</h1>"#)
        }
        if let image {
            rows += Self.row(
                #"<img src="\#(Self.escaped(image))" alt="" width="520" style="display:block;width:100%;border-radius:8px">"#
            )
        }
        for paragraph in self.paragraphs {
            rows += Self.row(#"<p style="margin:0;font-size:16px;line-height:24px">\#(paragraph)</p>"#)
        }
        if let link {
            rows += Self.row(
                #"<a href="\#(Self.escaped(link))" style="display:inline-block;padding:12px 24px;border-radius:8px;"#
                    + #"background:#1f4fd8;color:#ffffff;font-size:16px;text-decoration:none">Open</a>"#
            )
        }
        var foot = ""
        if let unsubscribe {
            foot = """
                <p style="margin:16px 0;font-size:13px;line-height:20px;color:#5c6370">\
                <a href="\(Self.escaped(unsubscribe))" style="color:#5c6370">Unsubscribe</a></p>

                """
        }
        return """
            <!DOCTYPE html>
            <html>
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <title>\(Self.escaped(self.title))</title>
            </head>
            <body style="margin:0;background:#f2f4f7;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif">
            <table role="presentation" width="100%" cellpadding="0" cellspacing="0"><tr>
            <td align="center" style="padding:24px">
            <table role="presentation" width="100%" cellpadding="0" cellspacing="0" \
            style="max-width:568px;background:#ffffff;color:#1a1d23;border-radius:12px;text-align:left">
            <tr><td style="height:16px"></td></tr>
            \(rows)<tr><td style="height:16px"></td></tr>
            </table>
            \(foot)</td>
            </tr></table>
            </body>
            </html>

            """
    }

    private static func row(_ content: String) -> String {
        "<tr><td style=\"padding:8px 24px\">\(content)</td></tr>\n"
    }

    /// The body's paragraphs, escaped, with their line breaks.
    private var paragraphs: [String] {
        let lines = self.body.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
        let groups = lines.split { $0.allSatisfy(\.isWhitespace) }
        return groups.map { group in group.map { Self.escaped($0) }.joined(separator: "<br>\n") }
    }

    /// The text with HTML's characters escaped, for content and for values in double quotes.
    static func escaped(_ text: some StringProtocol) -> String {
        var escaped = ""
        for character in text.unicodeScalars {
            switch character {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            case "\"": escaped += "&quot;"
            case "'": escaped += "&#39;"
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }
}
