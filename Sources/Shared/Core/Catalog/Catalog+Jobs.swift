// Carillon · Catalog+Jobs.swift
// SPDX-License-Identifier: Apache-2.0

extension Catalog {
    /// Decodes the fields of one entry, and checks what they name against the catalog.
    ///
    /// - Parameter providers: those that `platform` may name.
    /// - Throws: `JobFaults` with every fault.
    package func job(
        _ entry: [(name: String, value: ArraySlice<UInt8>)],
        providers: [Provider] = Provider.wellKnown
    ) throws(JobFaults) -> Job {
        try JobDecoder.decode(entry, providers: providers, isKnown: { self[$0] != nil }, check: self.faults)
    }

    /// What makes the texts of a job; nil if the job brings its own.
    package func renderer(_ content: JobContent) -> MessageRenderer? {
        guard let templates = self.texts(of: content) else { return nil }
        let variables = TemplateVariables(content.variables ?? [])
        return MessageRenderer(templates, default: self.defaultLocale, variables: variables)
    }

    /// What a job's variables lack for the texts of any locale.
    package func variableFaults(_ content: JobContent) -> [JobFault] {
        self.renderer(content)?.faults() ?? []
    }

    private func texts(of content: JobContent) -> TemplateSet? {
        if let name = content.template { return self.template(named: name) }
        return content.variables == nil ? nil : self.templates(of: content.type)
    }

    /// What does not go together in a job, or is not in the catalog.
    private func faults(_ content: JobContent) -> [JobFault] {
        let field = content.template == nil ? "vars" : "template"
        guard content.template != nil || content.variables != nil, self[content.type] != nil else { return [] }
        if !content.title.isEmpty || !content.body.isEmpty {
            return [JobFault(field, "does not go with title or body")]
        }
        guard self.texts(of: content) == nil else { return [] }
        let reason = field == "vars" ? "needs a template, as the type has none of its own" : "is not in the catalog"
        return [JobFault(field, reason)]
    }
}
