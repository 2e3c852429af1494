// Carillon · Accessibility.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support

/// The rules of WCAG that a program can check.
enum Accessibility {
    /// The script of axe; nil without the Python package `axe-core-python`, which it reports.
    static let script: String? = PythonClient.file("axe_core_python", "axe.min.js").flatMap {
        try? String(contentsOfFile: $0, encoding: .utf8)
    }
}

extension Browser {
    /// Returns the rules of WCAG 2.1 A and AA that the page breaks, each with the elements; empty
    /// without ``Accessibility/script``.
    ///
    /// It leaves axe in the page, which may break the page's own policies. Read ``complaints()``
    /// before.
    func barriers() async throws -> [String] {
        guard let script = Accessibility.script else { return [] }
        if try await self.run("return typeof axe") == .string("undefined") { try await self.run(script) }
        let found = try await self.run(
            """
            const options = {
              iframes: false, resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'],
            };
            const name = ({ target, failureSummary }) => `${target.join(' ')} (${failureSummary})`;
            // This release of axe is older than ARIA 1.3, which has the attribute.
            const isKnown = ({ failureSummary }) => failureSummary.endsWith('attribute name: aria-description');
            return axe.run(document, options).then(({ violations }) => violations
              .map(({ id, nodes }) => ({ id, nodes: nodes.filter((node) => !isKnown(node)) }))
              .filter(({ nodes }) => nodes.length)
              .map(({ id, nodes }) => `${id}: ${nodes.map(name).join('; ')}`));
            """)
        return found.strings ?? ["axe gave no answer: \(found)"]
    }
}
