// Carillon · ActionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Actions of the catalog", .timeLimit(.minutes(10)))
struct ActionTests {
    private static let text = """
        types:
          task: {actions: tasks}
          plain: {}
        actions:
          tasks:
            buttons:
              edit: {title: {en: Edit, de: Bearbeiten}, foreground: true}
              cancel: {title: {en: Cancel}, destructive: true, authentication: true}
              bare: {}
            rules:
              - {states: [overdue, due_soon], category: TASK_ACTIONABLE, buttons: [edit, cancel]}
              - {states: [done], category: TASK_COMPLETED, buttons: []}
            default: {buttons: [bare]}
        """

    @Test("the state picks category and buttons; what no rule names gets the default")
    func picks() throws {
        let catalog = try CatalogLoader.parse([("c.yaml", Self.text)])
        let actions = try #require(catalog.actions(of: "task"))
        #expect(actions.rule(for: "overdue")?.category == "TASK_ACTIONABLE")
        #expect(actions.rule(for: "due_soon")?.buttons.map(\.id) == ["edit", "cancel"])
        #expect(actions.rule(for: "done")?.buttons == [])
        for state in ["Overdue", "elsewhere", nil] {
            #expect(actions.rule(for: state)?.buttons.map(\.id) == ["bare"])
            #expect(actions.rule(for: state)?.category == nil)
        }
        #expect(catalog.actions(of: "plain") == nil)
        let buttons = try #require(actions.rule(for: "overdue")?.buttons)
        #expect(buttons[0].isForeground && !buttons[0].isDestructive)
        #expect(buttons[1].isDestructive && buttons[1].needsAuthentication)
        #expect(buttons[0].title(for: "de-CH", default: .english) == "Bearbeiten")
        #expect(buttons[0].title(for: "fr", default: .english) == "Edit")
        #expect(actions.rule(for: nil)?.buttons.first?.title(for: "de", default: .english) == "bare")
    }

    @Test("buttons are registered for the job's category or the rule's; the type's needs a rule that names none")
    func buttonCategories() throws {
        let text = """
            types:
              task: {actions: tasks, category: chores}
              news: {actions: news, category: world}
              plain: {category: chores}
            actions:
              tasks:
                buttons: {edit: {}}
                rules: [{states: [overdue], category: TASK_ACTIONABLE, buttons: [edit]}]
              news: {buttons: {save: {}}, default: {buttons: [save]}}
            """
        let catalog = try CatalogLoader.parse([("c.yaml", text)])
        func category(_ type: String, state: String? = nil, own: String? = nil) -> String? {
            let moment = Timestamp(seconds: 1_795_168_800)
            var notification = Notification(
                id: NotificationID(high: 1, low: 2), user: "u", type: type, createdAt: moment)
            notification.category = own ?? catalog[type]?.category
            notification.extras.state = state
            return catalog.buttonCategory(of: notification)
        }
        #expect(category("task", state: "overdue") == "TASK_ACTIONABLE")
        #expect(category("task", state: "overdue", own: "MINE") == "MINE")
        #expect(category("task") == nil)
        #expect(category("task", state: "elsewhere") == nil)
        #expect(category("news") == "world")
        #expect(category("plain") == nil)
        #expect(category("plain", own: "MINE") == "MINE")
        #expect(category("removed from the catalog", own: "MINE") == "MINE")
    }

    @Test(
        "faults are named with file and line",
        arguments: [
            ("buttons: 5", "expected buttons with an entry for each"),
            ("buttons: {a: {colour: red}}", "unknown setting button a.colour"),
            ("buttons: {a: {title: Edit}}", "expected button a.title with an entry for each locale"),
            ("buttons: {a: {foreground: 1}}", "button a.foreground must be true or false"),
            ("rules: {}", "rules must be a list of {states: …, category: …, buttons: …}"),
            ("rules: [{buttons: []}]", "a rule needs states"),
            ("rules: [{states: s}]", "states must be a list of texts"),
            ("rules: [{states: [s]}, {states: [s]}]", "state s has two rules"),
            ("rules: [{states: [s], buttons: [none]}]", "button none is not among the buttons"),
            ("default: {states: [s]}", "unknown setting states of a rule"),
            ("other: {}", "unknown setting other"),
        ]
    )
    func faults(setting: String, reason: String) {
        let fault = CatalogFaults([CatalogFault("c.yaml:3: actions t: \(reason)")])
        #expect(throws: fault) { try CatalogLoader.parse([("c.yaml", "actions:\n  t:\n    \(setting)\n")]) }
    }
}
