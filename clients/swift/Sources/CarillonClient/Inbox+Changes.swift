// Carillon · Inbox+Changes.swift
// SPDX-License-Identifier: Apache-2.0

/// The pages of the inbox that were loaded over REST.
struct LoadedPages: Sendable {
    /// The cursor of the next page; nil for the first.
    var cursor: String?
    var isAny = false
    /// Whether the last page is loaded.
    var isComplete = false
    var isLoading = false
    /// The loads in a row that failed.
    var failures = 0
    /// Ends when the next load may begin after a failure.
    var backoff: Task<Void, Never>?

    /// Moves the cursor to the end of a full list, because loaded rows may have left it.
    mutating func continueAfterLast(of state: InboxState) {
        guard self.isAny, state.isFull, let last = state.items.last?.id, last > self.cursor ?? "" else { return }
        self.cursor = last
        self.isComplete = false
    }
}

extension Inbox {
    private static let pageSize = 50
    private static let mostTries = 3
    private static let longestRetryAfter = Duration.seconds(30)

    /// Loads the next page of the inbox, newest first and with read notifications.
    ///
    /// Returns at once if there is no other page, if one is loading, or if ``notifications`` is at
    /// its limit. After a gap of more than 500 changes the list starts over, and the inbox loads
    /// its first page again.
    ///
    /// After a failure, the next call first waits: up to 30 s if the gateway says so, and a backoff
    /// with jitter of up to 30 s. So a view may call this as long as it needs a page.
    public func loadOlder() async throws(GatewayError) {
        guard !self.pages.isLoading, self.hasOlder else { return }
        await self.pages.backoff?.value
        guard !Task.isCancelled else { throw .cancelled }
        // Meanwhile another call may have begun.
        guard !self.pages.isLoading, self.hasOlder else { return }
        self.pages.isLoading = true
        defer { self.pages.isLoading = false }
        do throws(GatewayError) {
            try await self.loadPage()
            self.pages.failures = 0
        } catch {
            if error != .cancelled { self.delayNextPage(after: error) }
            throw error
        }
    }

    private func delayNextPage(after error: GatewayError) {
        var wait = self.timing.backoff(after: self.pages.failures)
        if case .refused(let problem) = error, let retryAfter = problem.retryAfter {
            wait += min(retryAfter, Self.longestRetryAfter)
        }
        self.pages.failures += 1
        // A task of its own, so that time passes also while no call waits.
        self.pages.backoff = Task { [timing] in try? await timing.sleep(wait) }
    }

    private func loadPage() async throws(GatewayError) {
        for _ in 1...Self.mostTries {
            guard self.hasOlder else { return }
            let cursor = self.pages.cursor
            let page = try await self.gateway.notifications(before: cursor, limit: Self.pageSize)
            // Meanwhile the list may have started over, or changed too much to merge the page.
            guard cursor == self.pages.cursor, self.state.merge(page) else { continue }
            self.pages.cursor = page.nextCursor
            self.pages.isAny = true
            self.pages.isComplete = page.nextCursor == nil
            self.show()
            return
        }
        throw .unreachable("the inbox changes faster than a page loads")
    }

    /// Loads the first page again after the list started over.
    func reloadPages() {
        let wasAny = self.pages.isAny
        self.pages.cursor = nil
        self.pages.isAny = false
        self.pages.isComplete = false
        self.show()
        guard wasAny else { return }
        Task { [weak self] in try? await self?.loadOlder() }
    }

    /// Marks notifications as read on all of the user's clients.
    public func markRead(_ ids: [String]) async throws(GatewayError) {
        guard !ids.isEmpty else { return }
        try await self.change(.read(Set(ids))) { gateway async throws(GatewayError) in
            try await gateway.markRead(ids)
        }
    }

    /// Marks everything as read that is in the inbox when the gateway gets the call.
    public func markAllRead() async throws(GatewayError) {
        try await self.change(.readAll(upTo: self.version ?? .max)) { gateway async throws(GatewayError) in
            try await gateway.markAllRead()
        }
    }

    /// Marks a notification as unread again; it does not arrive a second time.
    public func markUnread(_ id: String) async throws(GatewayError) {
        try await self.change(.unread(id)) { gateway async throws(GatewayError) in
            try await gateway.markUnread(id)
        }
    }

    /// Moves a notification to the archive, which keeps it for a year.
    ///
    /// Succeeds if the notification has already left the inbox.
    public func archive(_ id: String) async throws(GatewayError) {
        try await self.change(.removal(id)) { gateway async throws(GatewayError) in
            try await gateway.archive(id)
        }
    }

    /// Deletes a notification; ``restore(_:)`` can bring it back.
    ///
    /// Succeeds if the notification has already left the inbox.
    public func delete(_ id: String) async throws(GatewayError) {
        try await self.change(.removal(id)) { gateway async throws(GatewayError) in
            try await gateway.delete(id)
        }
    }

    /// Restores an archived or deleted notification; it shows when the socket reports it.
    public func restore(_ id: String) async throws(GatewayError) {
        try await self.gateway.restore(id)
    }

    /// Shows a change at once, and undoes it if the gateway does not make it.
    private func change(
        _ change: PendingChanges.Change,
        _ call: (Gateway) async throws(GatewayError) -> InboxChange?
    ) async throws(GatewayError) {
        guard let number = self.pending.add(change, at: self.timing.now()) else { throw .tooManyChanges }
        self.show()
        do throws(GatewayError) {
            let answer = try await call(self.gateway)
            // The frame may come before or after the answer.
            self.pending.confirm(number, version: answer?.version ?? 0)
            self.pending.removeConfirmed(upTo: self.version ?? 0)
            self.show()
        } catch {
            self.pending.remove(number)
            defer { self.show() }
            guard case .removal(let id) = change, case .refused(let problem) = error, problem.status == 404 else {
                throw error
            }
            // Another client, or a call whose answer was lost, has removed it.
            self.state.remove(id)
        }
    }
}
