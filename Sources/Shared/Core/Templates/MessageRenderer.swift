// Carillon · MessageRenderer.swift
// SPDX-License-Identifier: Apache-2.0

/// The texts of one job: rendered once for each locale that its recipients need.
package struct MessageRenderer: Sendable {
    private let templates: TemplateSet
    private let fallback: LocaleTag
    private let variables: TemplateVariables
    private var rendered: [String: Result<RenderedMessage, JobFault>] = [:]

    /// - Parameter variables: the job's `vars`.
    package init(_ templates: TemplateSet, default fallback: LocaleTag, variables: TemplateVariables) {
        self.templates = templates
        self.fallback = fallback
        self.variables = variables
    }

    /// Whether there is more than one locale.
    package var isLocalised: Bool { self.templates.locales.count > 1 }

    /// The texts for someone with that locale.
    ///
    /// - Throws: `JobFault` that names variable, template and locale.
    package mutating func message(locale: String?) throws(JobFault) -> RenderedMessage {
        let key = self.templates.locale(for: locale, default: self.fallback)
        if let known = self.rendered[key] { return try known.get() }
        let result = self.render(key)
        self.rendered[key] = result
        return try result.get()
    }

    /// What is wrong with the variables for any locale.
    package func faults() -> [JobFault] {
        self.templates.locales.keys.sorted().compactMap { locale in
            guard case .failure(let fault) = self.render(locale) else { return nil }
            return fault
        }
    }

    private func render(_ locale: String) -> Result<RenderedMessage, JobFault> {
        guard let template = self.templates.locales[locale] else {
            return .failure(JobFault("template", "has no text, \(self.place(locale))"))
        }
        do throws(TemplateVariableFault) {
            return .success(try template.render(self.variables))
        } catch {
            let field = error.name.isEmpty ? "vars" : "vars.\(error.name)"
            return .failure(JobFault(field, "\(error.reason), \(self.place(locale))"))
        }
    }

    private func place(_ locale: String) -> String { "in \(self.templates.owner), locale \(locale)" }
}
